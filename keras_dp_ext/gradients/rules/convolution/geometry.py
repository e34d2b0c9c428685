"""Where a convolution's patches lie, and the products of patches and gradients."""

from __future__ import annotations

import itertools
import math

import numpy as np
import tensorflow as tf

from keras_dp_ext.gradients.contributions import OuterProducts, Rows


def unsplit(value: tf.Tensor) -> tf.Tensor:
    """`[rows, examples, ...] -> [rows * examples, ...]`."""
    return tf.reshape(value, [-1, *value.shape[2:]])


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

    def _spatial(self, values) -> list:
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
        return tf.reshape(value, [-1, positions, value.shape[-1]])

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
        shape = gradient.shape[2:].as_list()
        positions = shape[1:] if self._channels_first else shape[:-1]
        return math.prod(positions) * math.prod(self.filter_shape[:-1])

    def products_of_patches(self, image: tf.Tensor, gradient: tf.Tensor):
        """The contribution of `[rows, examples, ...]` images, by matrix products."""
        rows = image.shape[0]
        image = self._channels_last(unsplit(image))
        sizes = image.shape[1:-1].as_list()
        image = tf.pad(image, [(0, 0), *self._pads(sizes), (0, 0)])
        right = self.flat(unsplit(gradient))
        right = tf.reshape(right, [rows, -1, right.shape[-1]])
        cell = self._stride_cell()
        if cell == 1:
            left = self._gathered_patches(image, self.kernel, self.strides)
            left = tf.reshape(left, [rows, right.shape[1], -1])
            return OuterProducts(left, right, self.filter_shape)
        # Pixels between two strides become channels: longer runs to copy.
        image = _space_to_depth(image, cell)
        kernel = [size // cell for size in self.kernel]
        left = self._gathered_patches(image, kernel, [1, 1])
        left = tf.reshape(left, [rows, right.shape[1], -1])
        inputs, outputs = self.filter_shape[-2:]
        product = tf.reshape(
            tf.matmul(left, right, transpose_a=True),
            [rows, *kernel, cell, cell, inputs, outputs],
        )
        product = tf.transpose(product, [0, 1, 3, 2, 4, 5, 6])
        return Rows(tf.reshape(product, [rows, *self.filter_shape]), self.filter_shape)

    def _stride_cell(self) -> int:
        """The stride, if it is the same both ways and divides the kernel; or 1."""
        stride = self.strides[0]
        fits = (
            len(self.kernel) == 2
            and self.strides == [stride, stride]
            and self.dilations == [1, 1]
            and all(size % stride == 0 for size in self.kernel)
        )
        return stride if fits else 1

    def _gathered_patches(self, image: tf.Tensor, kernel, strides) -> tf.Tensor:
        """`[batch, positions * taps, channels]` of a padded image."""
        sizes = image.shape[1:-1].as_list()
        offsets = np.zeros([1] * 2 * len(sizes), np.int64)
        for axis, (size, taps, stride, dilation) in enumerate(
            zip(sizes, kernel, strides, self.dilations, strict=True)
        ):
            starts = np.arange(0, size - (taps - 1) * dilation, stride)
            places = starts[:, np.newaxis] + dilation * np.arange(taps)
            shape = np.ones(2 * len(sizes), int)
            shape[[axis, axis + len(sizes)]] = places.shape
            offsets = offsets * size + places.reshape(shape)
        flat = tf.reshape(image, [-1, math.prod(sizes), image.shape[-1]])
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
        slices = []
        for offsets in itertools.product(*map(range, self.kernel)):
            window = [slice(None)]
            for offset, dilation, stride, count in zip(
                offsets, self.dilations, self.strides, counts, strict=True
            ):
                start = offset * dilation
                window.append(slice(start, start + (count - 1) * stride + 1, stride))
            slices.append(image[tuple(window)])
        stacked = tf.stack(slices, axis=-2)
        positions = 1
        for count in counts:
            positions *= count
        return tf.reshape(stacked, [-1, positions, len(slices), image.shape[-1]])


def _space_to_depth(image: tf.Tensor, cell: int) -> tf.Tensor:
    """`tf.nn.space_to_depth`, six times as fast; what fills no cell is cut off."""
    height, width = (size // cell for size in image.shape[1:3])
    channels = image.shape[-1]
    image = image[:, : height * cell, : width * cell]
    image = tf.reshape(image, [-1, height, cell, width, cell, channels])
    image = tf.transpose(image, [0, 1, 3, 2, 4, 5])
    return tf.reshape(image, [-1, height, width, cell * cell * channels])
