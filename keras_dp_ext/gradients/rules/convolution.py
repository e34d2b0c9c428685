"""Convolutions of one to three dimensions, depthwise and transposed ones."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_dp_ext.gradients.contributions import (
    UNIT_ROUNDOFF,
    Contribution,
    OuterProducts,
    Rows,
    have_finite_products,
    scale_rows,
    slice_rows,
)
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.registry import register_rule
from keras_dp_ext.gradients.rules.device import has_fast_matrix_products, runs_on_cpu

# Up to this many elements, a filter's per-row gradients are kept for the weighted
# sum; beyond, writing and reading them costs more than TensorFlow's kernel for the
# gradient of the whole batch (measured: break-even at 40,000 to 70,000).
_KEPT_ELEMENTS = 40_000

# Patches that are cut at a time: they should stay in cache until they are multiplied.
_CHUNK_BYTES = 4 * 2**20


@register_rule("Conv2D", "Conv3D")
def convolution(use, d, split):
    """`g_b = patches(x_b)^T d_b`, with `[*kernel, inputs, outputs]` weights."""
    if use.index != 1:
        return None
    return _convolution(use.op, use.op.inputs[0], use.weight.shape, d, split)


@register_rule("PartitionedCall", "StatefulPartitionedCall")
def convolution_in_a_function(use, d, split):
    """Keras compiles a grouped convolution by itself, in a function of its own."""
    graphs = graph_lib.called_graphs(use.op)
    if len(graphs) != 1 or use.outputs != 1:
        return None
    found = [op for op in graphs[0].get_operations() if op.type not in _WRAPPERS]
    if [op.type for op in found] not in (["Conv2D"], ["Conv3D"]):
        return None
    arguments = [tensor.op for tensor in graphs[0].inputs]
    image, weight = (arguments.index(_argument(t)) for t in found[0].inputs)
    if weight != use.index:
        return None
    shape = found[0].inputs[1].shape
    return _convolution(found[0], use.op.inputs[image], shape, d, split)


# What surrounds a convolution in a function that does nothing else.
_WRAPPERS = frozenset({"Placeholder", "ReadVariableOp", "Identity", "NoOp"})


def _argument(tensor: tf.Tensor) -> tf.Operation:
    while tensor.op.type in ("Identity", "ReadVariableOp"):
        tensor = tensor.op.inputs[0]
    return tensor.op


def _convolution(op, data, filter_shape, d, split):
    geometry = _Geometry(op, filter_shape)
    if not geometry.is_supported(data, d):
        return None
    if geometry.channels(data) != filter_shape[-2]:
        return _grouped(geometry, filter_shape, data, d, split)
    return _products(data, d, geometry, split, like=data)


def _grouped(geometry, filter_shape, data, d, split):
    """Every group of output channels sees its own group of input channels."""
    *kernel, inputs, outputs = filter_shape
    groups = geometry.channels(data) // inputs
    patches = geometry.patches(data)
    positions, taps = patches.shape[1], patches.shape[2]
    left = tf.reshape(patches, [-1, positions, taps, groups, inputs])
    right = tf.reshape(geometry.flat(d), [-1, positions, groups, outputs // groups])
    product = tf.einsum("btkgi,btgo->bkigo", left, right)
    product = tf.reshape(product, [-1, *kernel, inputs, outputs])
    return Rows(tf.reduce_sum(_split(product, split, data), axis=1), filter_shape)


@register_rule("DepthwiseConv2dNative")
def depthwise(use, d, split):
    """Each input channel has `multiplier` filters of its own."""
    if use.index != 1:
        return None
    geometry = _Geometry(use.op, use.weight.shape)
    data = use.op.inputs[0]
    if not geometry.is_supported(data, d):
        return None
    if runs_on_cpu():
        return _row_by_row(
            _split(data, split, data),
            _split(d, split, data),
            geometry.filter_shape,
            geometry.depthwise_filter_gradient,
        )
    product = geometry.depthwise_products(data, d)
    return Rows(tf.reduce_sum(_split(product, split, data), axis=1), use.weight.shape)


@register_rule("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def transposed_convolution(use, d, split):
    """The gradient of a convolution's gradient: data and output swap places."""
    if use.index != 1:
        return None
    geometry = _Geometry(use.op, use.weight.shape)
    data = use.op.inputs[2]
    if not geometry.is_supported(d, data):
        return None
    return _products(d, data, geometry, split, like=data)


def _products(image, gradient, geometry, split, like):
    image, gradient = _split(image, split, like), _split(gradient, split, like)
    if image.shape[1] is None:
        return None
    if not runs_on_cpu():
        return ConvolutionProducts(image, gradient, geometry)
    if not has_fast_matrix_products() or len(geometry.kernel) > 2:
        return _row_by_row(
            image, gradient, geometry.filter_shape, geometry.filter_gradient
        )
    return FilterGradients(
        image,
        gradient,
        geometry.filter_shape,
        max(
            1, _CHUNK_BYTES // (4 * image.shape[1] * geometry.patch_elements(gradient))
        ),
        geometry.products_of_patches,
        geometry.filter_gradient,
    )


def _row_by_row(image, gradient, shape, kernel):
    """One call of TensorFlow's own kernel for each row.

    Without oneDNN the kernel is as fast for one example as for a share of a batch.
    """

    def products(image, gradient):
        return Rows(kernel(image[0], gradient[0])[tf.newaxis], shape)

    return FilterGradients(image, gradient, shape, 1, products, kernel)


def _split(value: tf.Tensor, split, like: tf.Tensor) -> tf.Tensor:
    """`[rows, examples, ...]`, also where a dilation has cut images into blocks.

    TensorFlow dilates by `SpaceToBatchND`, which makes the blocks of an image
    *outer* axis of the batch: `[blocks * batch, ...]`.
    """
    blocks = _blocks(like)
    if blocks > 1:
        rest = value.shape[1:]
        value = tf.reshape(value, [blocks, -1, *rest])
        value = tf.transpose(value, [1, 0, *range(2, value.shape.rank)])
        value = tf.reshape(value, [-1, *rest])
    return split(value, like=like)


def _blocks(tensor: tf.Tensor) -> int:
    """Into how many blocks `SpaceToBatchND` has cut every image."""
    while tensor.op.type in ("ExpandDims", "Reshape", "Identity", "Cast"):
        tensor = tensor.op.inputs[0]
    if tensor.op.type != "SpaceToBatchND":
        return 1
    return int(np.prod(tf.get_static_value(tensor.op.inputs[1])))


class FilterGradients(Contribution):
    """Per-row gradients of a filter on a CPU, a cache full of rows at a time.

    Patches of a whole batch do not fit into any cache, and cutting them takes longer
    than multiplying them.

    Args:
        image: `[rows, examples, *spatial, inputs]`.
        gradient: `[rows, examples, *spatial, outputs]`.
        shape: Of the filter.
        chunk: How many rows at a time.
        products: From `chunk` rows of `image` and `gradient` to their
            contribution.
        kernel: From `[n, *spatial, inputs]` and `[n, *spatial, outputs]` to the
            gradient of the filter, summed over `n`.
    """

    def __init__(
        self,
        image: tf.Tensor,
        gradient: tf.Tensor,
        shape,
        chunk: int,
        products: Callable[[tf.Tensor, tf.Tensor], Contribution],
        kernel: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    ):
        self.shape = tuple(shape)
        self._image = tf.cast(image, tf.float32)
        self._gradient = tf.cast(gradient, tf.float32)
        self._chunk = chunk
        self._products = products
        self._kernel = kernel
        self._kept: Rows | None = None
        self._kept_finite: tf.Tensor | None = None

    def _for_each_chunk(self, function, *shapes):
        """A tensor `[rows, *shape]` for each tensor that `function` makes of a chunk."""
        rows = self._image.shape[0]
        if rows is not None and rows <= self._chunk:
            return function(self._products(self._image, self._gradient))
        # Of a batch whose size is not known yet, a power of two is likely a divisor.
        chunk = (
            2 ** int(math.log2(self._chunk))
            if rows is None
            else _divisor(rows, self._chunk)
        )
        rows = tf.shape(self._image)[0]
        count = -(-rows // chunk)
        image, gradient = (
            _with_rows(value, count * chunk) for value in (self._image, self._gradient)
        )
        results = tf.map_fn(
            lambda start: function(
                self._products(
                    slice_rows(image, start, chunk),
                    slice_rows(gradient, start, chunk),
                )
            ),
            tf.range(count) * chunk,
            fn_output_signature=[
                tf.TensorSpec([chunk, *shape], tf.float32) for shape in shapes
            ],
        )
        return [
            tf.reshape(result, [-1, *shape])[:rows]
            for result, shape in zip(results, shapes, strict=True)
        ]

    def _keep(self, scale: tf.Tensor | None) -> tf.Tensor:
        """Keeps all rows, zeros in place of those that are not finite.

        Norms are made while a chunk is in cache: a later pass over all rows would
        cost as much as the products.

        Returns:
            `[rows]`: their squared norms.
        """

        def rows_and_norms(part):
            # Built before either branch: what one branch builds the other can't use.
            rows = Rows(part.rows(), self.shape)
            norms = part.norm_squared(scale)
            finite = tf.math.is_finite(norms)
            finite_rows = tf.cond(
                tf.reduce_all(finite), rows.rows, lambda: rows.sanitized(finite).rows()
            )
            return [finite_rows, norms]

        rows, norms = self._for_each_chunk(rows_and_norms, self.shape, [])
        self._kept = Rows(rows, self.shape)
        self._kept_finite = tf.math.is_finite(norms)
        return norms

    @property
    def _keeps_rows(self) -> bool:
        return tf.TensorShape(self.shape).num_elements() <= _KEPT_ELEMENTS

    def norm_squared(self, scale=None):
        if self._kept is not None:
            norms = self._kept.norm_squared(scale)
            return tf.where(self._kept_finite, norms, float("nan"))
        if self._keeps_rows:
            return self._keep(scale)
        (norms,) = self._for_each_chunk(lambda part: [part.norm_squared(scale)], [])
        lost = self._rounding_of_sum()
        if scale is not None:
            lost /= tf.reduce_min(scale)
        return tf.square(tf.sqrt(norms) + lost)

    def _rounding_of_sum(self) -> tf.Tensor:
        """`[rows]`: by how much a row may be longer in `weighted_sum` than measured.

        The kernel for the whole batch rounds in another order. Where products cancel,
        what is left may be mostly rounding: at most that of a sum of as many terms as
        there are positions, and of their magnitudes.
        """
        image, gradient = (
            tf.norm(tf.reshape(value, [tf.shape(value)[0], -1]), axis=1)
            for value in (self._image, self._gradient)
        )
        # Every pixel is in as many patches as there are taps.
        taps = math.prod(self.shape[:-2])
        terms = self._gradient.shape[1:-1].num_elements()
        return terms * UNIT_ROUNDOFF * math.sqrt(taps) * image * gradient

    def weighted_sum(self, coefficients):
        if self._kept is not None:
            return self._kept.weighted_sum(coefficients)
        return self._kernel(
            _unsplit(self._image), _unsplit(scale_rows(coefficients, self._gradient))
        )

    def rows(self):
        if self._kept is not None:
            return self._kept.rows()
        (rows,) = self._for_each_chunk(lambda part: [part.rows()], self.shape)
        return rows

    def finite_rows(self):
        return have_finite_products(self._image, self._gradient)

    def map_factors(self, change):
        return FilterGradients(
            change(self._image),
            change(self._gradient),
            self.shape,
            self._chunk,
            self._products,
            self._kernel,
        )

    def sanitized(self, finite):
        if self._kept is not None:
            return self._kept.sanitized(finite)
        return super().sanitized(finite)

    def sum_of_finite(self, coefficients, finite):
        if self._kept is not None:
            # What is kept is finite.
            return self._kept.weighted_sum(coefficients)
        return super().sum_of_finite(coefficients, finite)


def _divisor(number: int, most: int) -> int:
    """The greatest divisor of `number` that is at most `most`."""
    return next(size for size in range(most, 0, -1) if number % size == 0)


def _with_rows(value: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Rows of zeros appended up to so many; no copy where none is missing."""
    missing = rows - tf.shape(value)[0]
    padding = [[0, missing]] + [[0, 0]] * (value.shape.rank - 1)
    padded = tf.cond(missing > 0, lambda: tf.pad(value, padding), lambda: value)
    return tf.ensure_shape(padded, [None, *value.shape[1:]])


class ConvolutionProducts(Contribution):
    """Outer products of image patches and output gradients.

    Patches are cut out only where the norm needs them; the weighted sum is
    TensorFlow's own kernel for the gradient of a filter. For XLA, and for devices
    that want one large product instead of many small ones.

    Args:
        image: `[rows, examples, *spatial, inputs]`.
        gradient: `[rows, examples, *spatial, outputs]`.
        geometry: Of the convolution that maps one to the other.
    """

    def __init__(self, image: tf.Tensor, gradient: tf.Tensor, geometry: _Geometry):
        self.shape = tuple(geometry.filter_shape)
        self._image = tf.cast(image, tf.float32)
        self._gradient = tf.cast(gradient, tf.float32)
        self._geometry = geometry

    @functools.cached_property
    def _products(self) -> OuterProducts:
        patches = self._geometry.patches(_unsplit(self._image))
        examples = self._image.shape[1]
        positions, taps, channels = patches.shape[1:]
        gradient = self._geometry.flat(_unsplit(self._gradient))
        return OuterProducts(
            tf.reshape(patches, [-1, examples * positions, taps * channels]),
            tf.reshape(gradient, [-1, examples * positions, gradient.shape[-1]]),
            self.shape,
        )

    def norm_squared(self, scale=None):
        return self._products.norm_squared(scale)

    def weighted_sum(self, coefficients):
        if "_products" in self.__dict__ and self._products.is_materialized:
            return self._products.weighted_sum(coefficients)
        return self._geometry.filter_gradient(
            _unsplit(self._image), _unsplit(scale_rows(coefficients, self._gradient))
        )

    def rows(self):
        return self._products.rows()

    def finite_rows(self):
        return have_finite_products(self._image, self._gradient)

    def map_factors(self, change):
        return ConvolutionProducts(
            change(self._image), change(self._gradient), self._geometry
        )

    def sanitized(self, finite):
        if "_products" in self.__dict__ and self._products.is_materialized:
            return self._products.sanitized(finite)
        return super().sanitized(finite)


def _space_to_depth(image: tf.Tensor, cell: int) -> tf.Tensor:
    """`tf.nn.space_to_depth`, six times as fast; what fills no cell is cut off."""
    height, width = (size // cell for size in image.shape[1:3])
    channels = image.shape[-1]
    image = image[:, : height * cell, : width * cell]
    image = tf.reshape(image, [-1, height, cell, width, cell, channels])
    image = tf.transpose(image, [0, 1, 3, 2, 4, 5])
    return tf.reshape(image, [-1, height, width, cell * cell * channels])


def _unsplit(value: tf.Tensor) -> tf.Tensor:
    """`[rows, examples, ...] -> [rows * examples, ...]`."""
    return tf.reshape(value, [-1, *value.shape[2:]])


class _Geometry:
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
        image = self._channels_last(_unsplit(image))
        sizes = image.shape[1:-1].as_list()
        image = tf.pad(image, [(0, 0), *self._pads(sizes), (0, 0)])
        right = self.flat(_unsplit(gradient))
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
