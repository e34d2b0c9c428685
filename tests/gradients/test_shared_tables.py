"""Weights that all examples share meet the data as stacks of matrices.

Tables of relative positions (DeBERTa, T5) are computed from weights alone and meet the
queries and keys of a batch in sums and batched products.
"""

import keras
import pytest
import tensorflow as tf
from keras import ops

HEADS, TIME, WIDTH = 2, 5, 3


class Table(keras.layers.Layer):
    """`[heads, table, width]` from a table by a matrix for each head."""

    def __init__(self, meet, rows=4):
        super().__init__()
        self.meet, self.rows = meet, rows

    def build(self, shape):
        self.table = self.add_weight(shape=(self.rows, 6))
        self.kernel = self.add_weight(shape=(HEADS, 6, WIDTH))

    def call(self, x):
        return self.meet(x, ops.matmul(self.table[None], self.kernel))


class Biases(keras.layers.Layer):
    """As in T5: the length is read off the data, which hides it while tracing."""

    def build(self, shape):
        self.table = self.add_weight(shape=(2 * TIME, HEADS))

    def call(self, x):
        length = tf.shape(x)[2]
        places = tf.range(length)[:, None] - tf.range(length)[None] + TIME
        biases = tf.transpose(tf.gather(self.table, places), [2, 0, 1])[None]
        return tf.matmul(x, x, transpose_b=True) + biases


class Repeated(Table):
    """As in DeBERTa: the table is repeated for each example first."""

    def call(self, x):
        table = ops.repeat(ops.tanh(self.table)[None], ops.shape(x)[0], axis=0)
        table = ops.einsum("btw,hwk->bhtk", table, self.kernel)
        return tf.matmul(x, table, transpose_b=True)


class FrozenAndRepeated(Repeated):
    """As in DeBERTa with LoRA: nothing but the projection is trained."""

    def build(self, shape):
        self.table = self.add_weight(shape=(self.rows, 6), trainable=False)
        self.kernel = self.add_weight(shape=(HEADS, 6, WIDTH), trainable=False)
        self.first = self.add_weight(shape=(HEADS, 6, 2), name="lora_kernel_a")
        self.second = self.add_weight(shape=(2, WIDTH), name="lora_kernel_b")

    def call(self, x):
        table = ops.repeat(ops.tanh(self.table)[None], ops.shape(x)[0], axis=0)
        kernel = self.kernel + 0.5 * ops.matmul(self.first, self.second)
        table = ops.einsum("btw,hwk->bhtk", table, kernel)
        return tf.matmul(x, table, transpose_b=True)


class FrozenAndTiled(keras.layers.Layer):
    """Frozen queries that are the same for each example, as in a Perceiver."""

    def build(self, shape):
        self.queries = self.add_weight(shape=(4, 6), trainable=False)
        self.dense = keras.layers.Dense(WIDTH)
        self.dense.build((None, 4, 6))

    def call(self, x):
        queries = ops.broadcast_to(self.queries[None], (ops.shape(x)[0], 4, 6))
        return tf.matmul(x, self.dense(queries)[:, None], transpose_b=True)


def matmul(*, transpose_x=False, transpose_y=False, weight_first=False):
    def meet(x, table):
        if transpose_x != weight_first:
            x = tf.transpose(x, [0, 1, 3, 2])
        if not transpose_y:
            table = tf.transpose(table, [0, 2, 1])
        if weight_first:
            return tf.matmul(
                table, x, transpose_a=not transpose_y, transpose_b=transpose_x
            )
        return tf.matmul(x, table, transpose_a=transpose_x, transpose_b=transpose_y)

    return meet


MODELS = {
    "biases": Biases,
    "frozen and repeated": lambda: FrozenAndRepeated(None),
    "frozen and tiled": FrozenAndTiled,
    "repeated": lambda: Repeated(None),
    "right": lambda: Table(matmul()),
    "right transposed": lambda: Table(matmul(transpose_y=True)),
    "both transposed": lambda: Table(matmul(transpose_x=True, transpose_y=True)),
    "left": lambda: Table(matmul(weight_first=True, transpose_y=True)),
    "left transposed": lambda: Table(matmul(weight_first=True)),
}


@pytest.mark.parametrize(
    "static, group, jit_compile",
    [(True, 1, True), (False, 1, False), (False, 2, False)],
)
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_a_tape(
    name, static, group, jit_compile, rng, check_against_tape
):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((HEADS, TIME, WIDTH)), MODELS[name]()])
    x = rng.normal(size=(3 * group, HEADS, TIME, WIDTH)).astype("float32")
    check_against_tape(model, x, static, group, jit_compile)
