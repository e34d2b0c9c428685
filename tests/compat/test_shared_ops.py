"""Equal integers of one graph become one op, and nothing else does."""

import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext._compat import op_creation
from keras_dp_ext.gradients.graph.copies import copy_ops


@pytest.fixture(autouse=True)
def observed():
    op_creation.observe_new_ops(_ignore)


def _ignore(op):
    del op


def _made_by(make):
    """The ops that `make` leaves in a graph, with their values when they run."""
    made = {}

    @tf.function
    def step():
        with op_creation.shared_ops():
            made["tensors"] = make()
        return [tf.identity(tensor) for tensor in made["tensors"]]

    values = [value.numpy().tolist() for value in step()]
    return [tensor.op for tensor in made["tensors"]], values


def test_equal_constants_are_one_op():
    ops, values = _made_by(lambda: [tf.constant([2, 3]), tf.constant([2, 3])])
    assert ops[0] is ops[1]
    assert values == [[2, 3], [2, 3]]


def test_a_shape_is_made_once_for_all_that_are_reshaped():
    def reshape():
        x = tf.zeros([6])
        return [tf.reshape(x, [2, 3]), tf.reshape(x + 1, [2, 3])]

    (first, second), _ = _made_by(reshape)
    assert first.inputs[1].op is second.inputs[1].op


@pytest.mark.parametrize(
    "one, other",
    [
        ((1, tf.int32), (2, tf.int32)),
        ((1, tf.int32), (1, tf.int64)),
        ((1.0, tf.float32), (1, tf.int32)),
        ((1.0, tf.float32), (1.0, tf.float32)),
        (([1, 1], tf.int32), ([[1, 1]], tf.int32)),
        (([1, 1], tf.int32), ([1, 1, 1], tf.int32)),
    ],
)
def test_constants_that_differ_stay_apart(one, other):
    ops, values = _made_by(lambda: [tf.constant(*one), tf.constant(*other)])
    assert ops[0] is not ops[1]
    assert values == [one[0], other[0]]


def test_another_graph_has_its_own():
    found = []

    @tf.function
    def step(x):
        with op_creation.shared_ops():
            found.append(tf.constant(7).op)
            return tf.while_loop(
                lambda i: i < 3,
                lambda i: [i + _noted(tf.constant(7))],
                [x],
            )[0]

    def _noted(tensor):
        found.append(tensor.op)
        return tensor

    assert int(step(tf.constant(0))) == 7
    assert found[0].graph is not found[1].graph


def test_constants_that_wait_or_have_a_device_are_left_alone():
    def make():
        with tf.device("/CPU:0"):
            placed = tf.constant(5)
        with tf.control_dependencies([tf.no_op()]):
            waits = tf.constant(6)
        return [placed, tf.constant(5), waits, tf.constant(6)]

    (placed, free, waits, other), _ = _made_by(make)
    assert placed is not free and waits is not other
    assert placed.device and not free.device


def test_large_constants_are_left_alone():
    large = tf.range(500).numpy()
    ops, _ = _made_by(lambda: [tf.constant(large), tf.constant(large)])
    assert ops[0] is not ops[1]


def test_nothing_is_shared_outside_of_the_scope():
    @tf.function
    def step():
        with op_creation.shared_ops():
            inside = tf.constant(3)
        assert tf.constant(3).op is not inside.op
        return inside

    assert int(step()) == 3


def test_zeros_to_differentiate_by_stay_apart():
    """Two taps of one shape had their gradients added up."""

    def make():
        one, other = tf.zeros([2]), tf.zeros([2])
        return tf.gradients(tf.reduce_sum(one + 3 * other), [one, other])

    _, values = _made_by(make)
    assert values == [[1, 1], [3, 3]]


def test_equal_rearrangements_of_one_tensor_are_one_op():
    def make():
        x = tf.random.normal([6])
        return [
            *(tf.reshape(x, [2, 3]) for _ in range(2)),
            *(tf.expand_dims(x, 0) for _ in range(2)),
            *(x[2:] for _ in range(2)),
        ]

    ops, values = _made_by(make)
    for first, second in zip(ops[::2], ops[1::2], strict=True):
        assert first is second
    assert len({tuple(np.ravel(value)) for value in values[:4]}) == 1


def test_arithmetic_of_integers_is_shared_and_of_floats_is_not():
    def make():
        n, x = tf.shape(tf.random.normal([6])), tf.random.normal([6])
        return [n * 2, n * 2, n * 3, x * 2, x * 2, tf.identity(n), tf.identity(n)]

    ops, values = _made_by(make)
    assert ops[0] is ops[1] and ops[0] is not ops[2]
    assert ops[3] is not ops[4]
    assert ops[5] is not ops[6]
    assert values[:3] == [[12], [12], [18]]


def test_draws_and_reads_are_never_shared():
    variable = tf.Variable([1, 2])

    def make():
        before = variable.read_value()
        variable.assign_add([1, 1])
        draws = [tf.random.uniform([3], 0, 9**8, tf.int32) for _ in range(2)]
        return [before * 1, variable.read_value() * 1, *draws]

    ops, values = _made_by(make)
    assert len(set(ops)) == 4
    assert values[:2] == [[1, 2], [2, 3]]


def test_a_copied_op_stands_for_its_original_alone():
    """Their gradients would be added up otherwise."""

    def make():
        x = tf.random.normal([6])
        one = tf.reshape(x, [2, 3])
        replaced = {id(x): x}
        with op_creation.unshared_ops():
            other = tf.reshape(x, [2, 3])
        copies = copy_ops([one.op], replaced)
        return [one, other, copies[id(one)]]

    ops, _ = _made_by(make)
    assert len(set(ops)) == 3
