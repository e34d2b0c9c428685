"""Where a convolution's patches lie, and the products of patches and gradients."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.gradients.contributions import OuterProducts, Rows
from keras_dp_ext.gradients.row_tensors import reshaped

# So many numbers in a row are copied as fast as fewer; if they overlap, so many.
_LONG_RUN, _LONG_OVERLAPPING_RUN = 8, 16


def unsplit(value: tf.Tensor) -> tf.Tensor:
    """`[rows, examples, ...] -> [rows * examples, ...]`."""
    return reshaped(value, [-1, *value.shape[2:]])


class Geometry:
    """Kernel, strides, dilations and padding of a convolution op."""

    def __init__(self, op: tf.Operation, filter_shape: tf.TensorShape):
        self._op = op
        self.filter_shape = filter_shape.as_list()
        self.kernel = self.filter_shape[:-2]
        self._channels_first = op.get_attr("data_format").startswith(b"NC")
        self.strides = self._spatial(op.get_attr("strides"))
        self.dilations = self._spatial(op.get_attr("dilations"))
        self._padding = op.get_attr("padding").decode()
        explicit = (
            list(op.get_attr("explicit_paddings"))
            if self._padding == "EXPLICIT"
            else []
        )
        pairs = list(zip(explicit[::2], explicit[1::2], strict=True))
        self._explicit = self._spatial(pairs) if pairs else None

    def _spatial(self, values: Sequence[Any]) -> list[Any]:
        values = list(values)
        return values[2:] if self._channels_first else values[1:-1]

    def is_supported(self, image: tf.Tensor, result: tf.Tensor) -> bool:
        """Patches need the sizes of the image to be known."""
        return (
            image.shape[1:].is_fully_defined() and result.shape[1:].is_fully_defined()
        )

    def channels(self, image: tf.Tensor) -> int:
        return image.shape[1] if self._channels_first else image.shape[-1]

    def _channels_last(self, value: tf.Tensor) -> tf.Tensor:
        if not self._channels_first:
            return value
        return tf.transpose(value, [0, *range(2, value.shape.rank), 1])

    def flat(self, value: tf.Tensor) -> tf.Tensor:
        """`[batch, positions, channels]`."""
        value = self._channels_last(value)
        positions = value.shape[1:-1].num_elements()
        return reshaped(value, [-1, positions, value.shape[-1]])

    def _pads(self, sizes: list[int]) -> list[tuple[int, int]]:
        if self._padding == "EXPLICIT":
            return self._explicit
        if self._padding == "VALID":
            return [(0, 0)] * len(sizes)
        pads = []
        for size, kernel, stride, dilation in zip(
            sizes, self.kernel, self.strides, self.dilations, strict=True
        ):
            reach = (kernel - 1) * dilation + 1
            total = max(0, (-(-size // stride) - 1) * stride + reach - size)
            pads.append((total // 2, total - total // 2))
        return pads

    def filter_gradient(self, image: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        """Gradient of the filter, summed over the batch."""
        attributes = {
            name: self._op.get_attr(name)
            for name in ("strides", "padding", "data_format", "dilations")
        }
        if len(self.kernel) == 3:
            return tf.raw_ops.Conv3DBackpropFilterV2(
                input=image,
                filter_sizes=self.filter_shape,
                out_backprop=gradient,
                **attributes,
            )
        if self._explicit:
            attributes["explicit_paddings"] = self._op.get_attr("explicit_paddings")
        return tf.raw_ops.Conv2DBackpropFilter(
            input=image,
            filter_sizes=self.filter_shape,
            out_backprop=gradient,
            **attributes,
        )

    def depthwise_filter_gradient(
        self, image: tf.Tensor, gradient: tf.Tensor
    ) -> tf.Tensor:
        """The same for a depthwise convolution."""
        if self.dilations != [1, 1]:
            # TensorFlow's kernel on CPUs does not dilate.
            return tf.reduce_sum(self.depthwise_products(image, gradient), axis=0)
        return tf.raw_ops.DepthwiseConv2dNativeBackpropFilter(
            input=image,
            filter_sizes=self.filter_shape,
            out_backprop=gradient,
            strides=self._op.get_attr("strides"),
            padding=self._padding,
            data_format=self._op.get_attr("data_format"),
            explicit_paddings=self._op.get_attr("explicit_paddings"),
        )

    def grouped_products(self, image: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        """`[batch, *filter]`: per-image gradients of the filter of a grouped one."""
        inputs, outputs = self.filter_shape[-2:]
        groups = self.channels(image) // inputs
        patches = self.patches(image)
        positions, taps = patches.shape[1], patches.shape[2]
        left = tf.reshape(patches, [-1, positions, taps, groups, inputs])
        right = tf.reshape(
            self.flat(gradient), [-1, positions, groups, outputs // groups]
        )
        product = tf.einsum("btkgi,btgo->bkigo", left, right)
        return tf.reshape(product, [-1, *self.filter_shape])

    def depthwise_products(self, image: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        """`[batch, *filter]`: the same for each image."""
        *_, inputs, multiplier = self.filter_shape
        patches = self.patches(image)
        right = tf.reshape(
            self.flat(gradient), [-1, patches.shape[1], inputs, multiplier]
        )
        product = tf.einsum("btkc,btcm->bkcm", patches, right)
        return tf.reshape(product, [-1, *self.filter_shape])

    def patch_elements(self, gradient: tf.Tensor) -> int:
        """How many elements the patches of one image have.

        Args:
            gradient: `[rows, examples, ...]`.
        """
        return self.positions(gradient) * math.prod(self.filter_shape[:-1])

    def positions(self, gradient: tf.Tensor) -> int:
        """At how many places of one image of `[rows, examples, ...]` a filter is."""
        return math.prod(self._positions(gradient))

    def _positions(self, gradient: tf.Tensor) -> list[int]:
        """At how many places a filter is applied, by axis."""
        shape = gradient.shape[2:].as_list()
        return shape[1:] if self._channels_first else shape[:-1]

    def products_of_patches(
        self, image: tf.Tensor, gradient: tf.Tensor
    ) -> OuterProducts:
        """The contribution of `[rows, examples, ...]` images, by matrix products.

        Of the shape `cells_shape`; see `from_cells`.
        """
        right = self.flat(unsplit(gradient))
        positions = image.shape[1] * right.shape[1]
        image = self._padded(unsplit(image))
        if self.cell > 1:
            image = _space_to_depth(image, self.cell)
            kernel = [size // self.cell for size in self.kernel]
            left = self._gathered_patches(image, kernel, [1, 1])
        else:
            left = self._gathered_patches(image, self.kernel, self.strides)
        return OuterProducts(
            reshaped(left, [-1, positions, math.prod(self.filter_shape[:-1])]),
            reshaped(right, [-1, positions, self.filter_shape[-1]]),
            self.cells_shape,
        )

    def depthwise_products_of_patches(
        self, image: tf.Tensor, gradient: tf.Tensor
    ) -> Any:
        """The same for a depthwise convolution, of the shape of the filter."""
        *kernel, inputs, multiplier = self.filter_shape
        positions = gradient.shape[1] * self.positions(gradient)
        patches = self._gathered_patches(
            self._padded(unsplit(image)), self.kernel, self.strides
        )
        left = tf.reshape(patches, [-1, positions, math.prod(kernel), inputs, 1])
        right = tf.reshape(
            self.flat(unsplit(gradient)), [-1, positions, 1, inputs, multiplier]
        )
        product = tf.reduce_sum(left * right, axis=1)
        return Rows(tf.reshape(product, [-1, *self.filter_shape]), self.filter_shape)

    def _padded(self, image: tf.Tensor) -> tf.Tensor:
        """With channels last."""
        image = self._channels_last(image)
        *sizes, channels = image.shape[1:].as_list()
        pads = self._pads(sizes)
        if not any(map(sum, pads)):
            return image
        # In rows of numbers: pixels of few channels take up to three times as long.
        image = tf.reshape(image, [-1, *sizes[:-1], sizes[-1] * channels])
        before, after = pads[-1]
        rows = before * channels, after * channels
        image = tf.pad(image, [(0, 0), *pads[:-1], rows])
        padded = [size + sum(pad) for size, pad in zip(sizes, pads, strict=True)]
        return tf.reshape(image, [-1, *padded, channels])

    @functools.cached_property
    def cell(self) -> int:
        """Side of the squares of pixels that become channels before patches are cut.

        That makes the runs longer which have to be copied. More than 1 where channels
        are few and the stride divides the kernel, the same both ways.
        """
        stride = self.strides[0]
        pays = (
            len(self.kernel) == 2
            and self.strides == [stride, stride]
            and self.dilations == [1, 1]
            and all(size % stride == 0 for size in self.kernel)
            and stride * self.filter_shape[-2] < _LONG_RUN
        )
        return stride if pays else 1

    @property
    def cells_shape(self) -> list[int]:
        """Shape of a filter whose taps are sorted by cells; see `cell`."""
        if self.cell == 1:
            return self.filter_shape
        cells = [size // self.cell for size in self.kernel]
        return [*cells, self.cell, self.cell, *self.filter_shape[-2:]]

    def to_cells(self, value: tf.Tensor) -> tf.Tensor:
        """From `filter_shape` to `cells_shape`."""
        if self.cell == 1:
            return value
        high, wide, *rest = self.cells_shape
        value = tf.reshape(value, [high, self.cell, wide, *rest[1:]])
        return tf.transpose(value, [0, 2, 1, 3, 4, 5])

    def from_cells(self, value: tf.Tensor) -> tf.Tensor:
        """From `[..., *cells_shape]` to `[..., *filter_shape]`."""
        if self.cell == 1:
            return value
        outer = value.shape.rank - len(self.cells_shape)
        axes = [*range(outer), *(outer + axis for axis in (0, 2, 1, 3, 4, 5))]
        return tf.reshape(tf.transpose(value, axes), [-1] * outer + self.filter_shape)

    def _gathered_patches(
        self, image: tf.Tensor, kernel: Sequence[int], strides: Sequence[int]
    ) -> tf.Tensor:
        """`[batch, positions * taps, channels]` of a padded image, or reshaped."""
        if math.prod(kernel) == 1:
            # Pixels are patches.
            steps = slice(None), *(slice(None, None, stride) for stride in strides)
            return image if math.prod(strides) == 1 else image[steps]
        places = [
            np.arange(0, size - (taps - 1) * dilation, stride)[:, np.newaxis]
            + dilation * np.arange(taps)
            for size, taps, stride, dilation in zip(
                image.shape[1:-1], kernel, strides, self.dilations, strict=True
            )
        ]
        image, places[-1] = _in_long_runs(image, places[-1])
        *sizes, channels = image.shape[1:]
        offsets = np.zeros([1] * 2 * len(sizes), np.int64)
        for axis, (size, taken) in enumerate(zip(sizes, places, strict=True)):
            shape = np.ones(2 * len(sizes), int)
            shape[[axis, axis + len(sizes)]] = taken.shape
            offsets = offsets * size + taken.reshape(shape)
        flat = tf.reshape(image, [-1, math.prod(sizes), channels])
        return tf.gather(flat, tf.constant(offsets.ravel(), tf.int32), axis=1)

    def patches(self, image: tf.Tensor) -> tf.Tensor:
        """`[batch, positions, taps, channels]`, by slices: cheap with XLA too."""
        image = self._channels_last(image)
        sizes = image.shape[1:-1].as_list()
        pads = self._pads(sizes)
        image = tf.pad(image, [(0, 0), *pads, (0, 0)])
        counts = [
            (size + sum(pad) - (kernel - 1) * dilation - 1) // stride + 1
            for size, pad, kernel, dilation, stride in zip(
                sizes, pads, self.kernel, self.dilations, self.strides, strict=True
            )
        ]
        # One axis after the other: 3 + 3 slices for a 3 x 3 kernel, not 9.
        patches = image
        spatial = len(self.kernel)
        for axis in reversed(range(spatial)):
            dilation, stride = self.dilations[axis], self.strides[axis]
            slices = []
            for offset in range(self.kernel[axis]):
                start = offset * dilation
                end = start + (counts[axis] - 1) * stride + 1
                window = [slice(None)] * (axis + 1) + [slice(start, end, stride)]
                slices.append(patches[tuple(window)])
            patches = tf.stack(slices, axis=spatial + 1)
        return tf.reshape(
            patches,
            [-1, math.prod(counts), math.prod(self.kernel), image.shape[-1]],
        )


def _space_to_depth(image: tf.Tensor, cell: int) -> tf.Tensor:
    """`tf.nn.space_to_depth`, six times as fast; what fills no cell is cut off."""
    height, width = (size // cell for size in image.shape[1:3])
    channels = image.shape[-1]
    image = image[:, : height * cell, : width * cell]
    image = tf.reshape(image, [-1, height, cell, width, cell, channels])
    image = tf.transpose(image, [0, 1, 3, 2, 4, 5])
    return tf.reshape(image, [-1, height, width, cell * cell * channels])


def _in_long_runs(image: tf.Tensor, places: np.ndarray) -> tuple[tf.Tensor, np.ndarray]:
    """Makes channels of neighbours on the last axis that all patches have together.

    Patches are copied run by run, and a run of one pixel with few channels costs as
    much as a long one.

    Args:
        image: `[batch, *spatial, channels]`.
        places: `[positions, taps]`: which pixels of the last axis a patch takes.

    Returns:
        The image with longer channels, and the places in it.
    """
    *sizes, channels = image.shape[1:]
    positions, taps = places.shape
    step = places[1, 0] if positions > 1 else taps
    run = math.gcd(taps, int(step))
    if taps > 1 and places[0, 1] > 1:
        run = 1  # Dilated.
    overlap = step == 1 and 1 < taps < positions and places[0, 1] == 1
    if overlap and channels < _LONG_OVERLAPPING_RUN:
        return _in_shifted_runs(image, positions, taps)
    if run * channels >= _LONG_RUN:
        if run > 1:
            wide = places[-1, -1] + 1
            if sizes[-1] % run:
                image = image[..., :wide, :]
                sizes[-1] = wide
            image = tf.reshape(
                image, [-1, *sizes[:-1], sizes[-1] // run, run * channels]
            )
        return image, places[:, ::run] // run
    image = tf.gather(image, tf.constant(places.ravel(), tf.int32), axis=-2)
    image = tf.reshape(image, [-1, *sizes[:-1], positions, taps * channels])
    return image, np.arange(positions)[:, np.newaxis]


def _in_shifted_runs(
    image: tf.Tensor, positions: int, taps: int
) -> tuple[tf.Tensor, np.ndarray]:
    """The same where every pixel of the last axis is the first of a run.

    Runs overlap, but every `taps`th ones do not: they are a row of the image, shifted.
    Copying as many whole rows is four times faster than copying runs.
    """
    *sizes, channels = image.shape[1:]
    runs = -(-positions // taps)
    row = runs * taps * channels
    missing = row + (taps - 1 - sizes[-1]) * channels
    image = tf.reshape(image, [-1, *sizes[:-1], sizes[-1] * channels])
    if missing > 0:
        image = tf.pad(image, [(0, 0)] * len(sizes) + [(0, missing)])
    starts = range(0, taps * channels, channels)
    image = tf.stack([image[..., start : start + row] for start in starts], axis=-2)
    image = tf.reshape(image, [-1, *sizes[:-1], taps * runs, taps * channels])
    number = np.arange(positions)[:, np.newaxis]
    return image, number % taps * runs + number // taps
