"""How many batches long an axis is can be read off the graph of the usual layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.gradients import split as split_lib
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.leading_axis import batches_per_axis

layers = keras.layers


def _attention(**arguments):
    def build(x):
        x = layers.Embedding(9, 8, mask_zero=True)(x)
        x = layers.Dense(8, "gelu")(x)
        return layers.MultiHeadAttention(2, 4)(x, x, **arguments)

    return build


class Table(layers.Layer):
    """A table of positions, added to every example."""

    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:])

    def call(self, x):
        return x + self.table


TOKENS, IMAGE = ([6], "int32"), ([4, 4, 2], "float32")


@pytest.mark.parametrize(
    "inputs, build",
    [
        (TOKENS, _attention()),
        (TOKENS, _attention(use_causal_mask=True)),
        (TOKENS, lambda x: Table()(layers.Embedding(9, 8)(x))[:, -1]),
        (IMAGE, lambda x: layers.Dense(5)(layers.Reshape([16, 2])(x))),
        (IMAGE, lambda x: layers.Conv2D(3, 3)(x)[:, ::2]),
    ],
    ids=["attention", "causal", "last position", "dense", "slices"],
)
def test_no_second_forward_pass_is_needed(inputs, build, monkeypatch):
    x = keras.Input(inputs[0], dtype=inputs[1])
    model = keras.Model(x, layers.Dense(2)(layers.Flatten()(build(x))))
    found = {}

    @tf.function(input_signature=[tf.TensorSpec([None, *inputs[0]], inputs[1])])
    def step(x):
        losses = tf.reduce_sum(tf.square(model(x)), axis=1)
        ops = graph_lib.ancestors([losses])
        found["read"] = batches_per_axis(ops, graph_lib.data_sources(ops, None))
        found["true"] = split_lib._infer_shapes(losses)
        found["tensors"] = [one for op in ops for one in op.outputs]
        return losses

    step.get_concrete_function()
    unread = {"SparseSoftmaxCrossEntropyWithLogits"}
    for tensor in found["tensors"]:
        if not tensor.shape.rank or tensor.shape[0] is not None:
            continue
        read, true = found["read"].get(id(tensor)), found["true"].get(id(tensor))
        if read is not None and true is not None and true.rank:
            assert true[0] == split_lib.ASSUMED_BATCH * read, tensor
        elif tensor.op.type in ("Reshape", "MatMul", "BatchMatMulV2", "Einsum"):
            unread.add(tensor.op.type)
    assert unread == {"SparseSoftmaxCrossEntropyWithLogits"}


def test_what_two_inputs_contradict_is_not_read():
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 6])
        twice = tf.reshape(x, [-1, 3])
        ops = [(tf.tile(x[:, :3], [2, 1]) + twice).op, (twice + twice).op]
        lengths = batches_per_axis(
            graph_lib.ancestors([op.outputs[0] for op in ops]), [x]
        )
        assert lengths[id(twice)] == 2
        assert lengths[id(ops[1].outputs[0])] == 2
        assert id(twice + x[:, :3]) not in lengths


def test_numbers_beyond_the_batch_stay_unread():
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 6])
        cut = [x[1:], x[::2], x[:, 0][tf.newaxis], tf.gather(x, [0, 1], axis=1)]
        lengths = batches_per_axis(graph_lib.ancestors(cut), [x])
        assert not any(id(one) in lengths for one in cut)
        assert np.all([size == 1 for size in lengths.values()])
