"""Which contribution a convolution's filter gets, by op and by device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from keras_dp_ext.gradients.contributions import (
    Contribution,
    Mapped,
    OuterProducts,
    Rows,
)
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.uses import Use
from keras_dp_ext.gradients.registry import register_rule
from keras_dp_ext.gradients.rules.convolution.filter_gradients import (
    FilterGradients,
    kept_elements,
)
from keras_dp_ext.gradients.rules.convolution.geometry import Geometry, unsplit
from keras_dp_ext.gradients.rules.convolution.patch_products import PatchProducts
from keras_dp_ext.gradients.rules.device import has_fast_matrix_products, runs_on_cpu
from keras_dp_ext.gradients.split import Split

# The products of as many pixels with each other are small beside any large filter.
_FEW_POSITIONS = 64


@register_rule("Conv2D", "Conv3D")
def convolution(use: Use, d: tf.Tensor, split: Split) -> Contribution | None:
    """`g_b = patches(x_b)^T d_b`, with `[*kernel, inputs, outputs]` weights."""
    if use.index != 1:
        return None
    return _convolution(use.op, use.op.inputs[0], use.weight.shape, d, split)


@register_rule("PartitionedCall", "StatefulPartitionedCall")
def convolution_in_a_function(
    use: Use, d: tf.Tensor, split: Split
) -> Contribution | None:
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


def _convolution(
    op: tf.Operation,
    data: tf.Tensor,
    filter_shape: Sequence[int],
    d: tf.Tensor,
    split: Split,
) -> Contribution | None:
    geometry = Geometry(op, filter_shape)
    if not geometry.is_supported(data, d):
        return None
    if geometry.channels(data) != filter_shape[-2]:
        return _grouped(geometry, data, d, split)
    return _products(data, d, geometry, split, like=data)


def _grouped(
    geometry: Geometry, data: tf.Tensor, d: tf.Tensor, split: Split
) -> Contribution | None:
    """Every group of output channels sees its own group of input channels."""
    shape = geometry.filter_shape
    if not runs_on_cpu():
        product = geometry.grouped_products(data, d)
        return Rows(tf.reduce_sum(_split(product, split, data), axis=1), shape)
    image, gradient = _split(data, split, data), _split(d, split, data)
    if image.shape[1] is None:
        return None

    def products(image: tf.Tensor, gradient: tf.Tensor) -> Contribution:
        examples = image.shape[1]
        product = geometry.grouped_products(unsplit(image), unsplit(gradient))
        return Rows(
            tf.reduce_sum(tf.reshape(product, [-1, examples, *shape]), axis=1), shape
        )

    # Patches have the channels of all groups, the filter those of one.
    groups = geometry.channels(data) // shape[-2]
    elements = image.shape[1] * geometry.patch_elements(gradient) * groups
    rows = FilterGradients(image, gradient, shape, elements, products, None).rows()
    return Rows(rows, shape)


@register_rule("DepthwiseConv2dNative")
def depthwise(use: Use, d: tf.Tensor, split: Split) -> Contribution | None:
    """Each input channel has `multiplier` filters of its own."""
    if use.index != 1:
        return None
    geometry = Geometry(use.op, use.weight.shape)
    data = use.op.inputs[0]
    if not geometry.is_supported(data, d):
        return None
    if runs_on_cpu():
        image, gradient = _split(data, split, data), _split(d, split, data)
        if image.shape[1] is None:
            return None
        if not has_fast_matrix_products():
            return _row_by_row(
                image,
                gradient,
                geometry.filter_shape,
                geometry.depthwise_filter_gradient,
            )
        # oneDNN's kernel for one small image takes up to a thousand times longer than
        # for its share of a batch.
        multiplier = geometry.filter_shape[-1]
        elements = image.shape[1] * geometry.patch_elements(gradient)
        return FilterGradients(
            image,
            gradient,
            geometry.filter_shape,
            elements * (1 + multiplier),
            geometry.depthwise_products_of_patches,
            geometry.depthwise_filter_gradient,
        )
    product = geometry.depthwise_products(data, d)
    return Rows(tf.reduce_sum(_split(product, split, data), axis=1), use.weight.shape)


@register_rule("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def transposed_convolution(use: Use, d: tf.Tensor, split: Split) -> Contribution | None:
    """The gradient of a convolution's gradient: data and output swap places."""
    if use.index != 1:
        return None
    geometry = Geometry(use.op, use.weight.shape)
    data = use.op.inputs[2]
    if not geometry.is_supported(d, data):
        return None
    return _products(d, data, geometry, split, like=data)


def _products(
    image: tf.Tensor,
    gradient: tf.Tensor,
    geometry: Geometry,
    split: Split,
    like: tf.Tensor,
) -> Contribution | None:
    image, gradient = _split(image, split, like), _split(gradient, split, like)
    if image.shape[1] is None:
        return None
    if not runs_on_cpu():
        return PatchProducts(image, gradient, geometry)
    if not has_fast_matrix_products() or len(geometry.kernel) > 2:
        return _row_by_row(
            image, gradient, geometry.filter_shape, geometry.filter_gradient
        )
    if _needs_no_chunks(image, gradient, geometry):
        return geometry.products_of_patches(image, gradient)
    products = FilterGradients(
        image,
        gradient,
        geometry.cells_shape,
        image.shape[1] * geometry.patch_elements(gradient),
        geometry.products_of_patches,
        lambda image, gradient: geometry.to_cells(
            geometry.filter_gradient(image, gradient)
        ),
    )
    if geometry.cell == 1:
        return products
    return Mapped(
        products,
        geometry.filter_shape,
        rows_map=geometry.from_cells,
        sum_map=geometry.from_cells,
        scale_map=geometry.to_cells,
    )


def _needs_no_chunks(image: tf.Tensor, gradient: tf.Tensor, geometry: Geometry) -> bool:
    """Whether a convolution is a dense layer for every pixel, with short norms.

    The patches of a 1 x 1 kernel are the pixels, so nothing is copied. A loop over
    chunks would be a hundred ops more to trace, for each of a deep network's.
    """
    if any(size != 1 for size in geometry.kernel):
        return False
    inputs, outputs = geometry.filter_shape[-2:]
    if inputs * outputs <= kept_elements():
        return True
    positions = image.shape[1] * geometry.positions(gradient)
    return positions <= _FEW_POSITIONS and OuterProducts.is_ghost_cheaper(
        positions, inputs, outputs
    )


def _row_by_row(
    image: tf.Tensor,
    gradient: tf.Tensor,
    shape: Sequence[int],
    kernel: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
) -> Contribution | None:
    """One call of TensorFlow's own kernel for each row.

    Without oneDNN the kernel is as fast for one example as for a share of a batch.
    """

    def products(image: tf.Tensor, gradient: tf.Tensor) -> Contribution:
        return Rows(kernel(image[0], gradient[0])[tf.newaxis], shape)

    return FilterGradients(image, gradient, shape, None, products, kernel)


def _split(value: tf.Tensor, split: Split, like: tf.Tensor) -> tf.Tensor:
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
