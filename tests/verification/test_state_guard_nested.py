"""What happens around an inner `tf.function` that holds the update is seen, too."""

import pytest
import tensorflow as tf

import keras_dp_ext as dp
from tests.verification.guarded_models import EXAMPLES, Stepping, data, train

REFUSED = r"updates the weight .* from the data.*without bound or noise"


@pytest.mark.parametrize("jit_compile", [False, True])
def test_statistics_before_and_writes_after_an_inner_function_are_refused(jit_compile):
    def step(model, x, y):
        mean = tf.reduce_mean(x)
        tf.function(model.update, jit_compile=jit_compile)(x, y)
        model.state.assign(mean)

    with pytest.raises(ValueError, match=REFUSED):
        train(step)
    assert not train.changed


def test_statistics_that_an_inner_function_returns_are_refused():
    def step(model, x, y):
        @tf.function
        def inner(x, y):
            model.update(x, y)
            return tf.reduce_mean(x)

        model.state.assign(inner(x, y))

    with pytest.raises(ValueError, match=REFUSED):
        train(step)
    assert not train.changed


def test_writes_before_an_inner_function_are_refused():
    def step(model, x, y):
        model.state.assign(tf.reduce_mean(x))
        tf.function(lambda: tf.function(model.update)(x, y))()

    with pytest.raises(ValueError, match=REFUSED):
        train(step)
    assert not train.changed


def test_gradients_through_a_loop_after_the_update_are_refused():
    """The gradient gives the loop outputs that it did not have before."""

    def step(model, x, y):
        with tf.GradientTape() as tape:
            weight = tf.convert_to_tensor(model.state) + 1.0
            tape.watch(weight)
            _, product = tf.while_loop(
                lambda i, p: i < 3,
                lambda i, p: (i + 1, p * weight * x[i, 0]),
                [0, tf.constant(1.0)],
            )
        model.update(x, y)
        model.state.assign(tape.gradient(product, weight))

    with pytest.raises(ValueError, match=REFUSED):
        train(step)
    assert not train.changed


def test_a_step_that_is_traced_again_around_a_known_function_is_guarded():
    """The inner function keeps its graph, so that the guard must find the outer one."""
    inner = []

    def step(model, x, y):
        if not inner:
            inner.append(tf.function(model.update, reduce_retracing=True))
        inner[0](x, y)
        if model.attacks:
            model.state.assign(tf.reduce_mean(x))

    x, y = data()
    model = Stepping(step)
    model.attacks = False
    model(x)
    model.compile(dp.optimizers.DPSGD())
    model.fit(x, y, batch_size=EXAMPLES, verbose=0)
    model.attacks = True
    model.make_train_function(force=True)
    with pytest.raises(ValueError, match=REFUSED):
        model.fit(x, y, batch_size=EXAMPLES, verbose=0)
    assert int(model.optimizer.releases) == 1


def test_a_resource_behind_a_branch_is_not_lost_sight_of():
    def step(model, x, y):
        model.update(x, y)
        handle = tf.cond(
            model.optimizer.iterations > 0,
            lambda: model.state.value.handle,
            lambda: model.state.value.handle,
        )
        tf.raw_ops.AssignVariableOp(resource=handle, value=tf.reduce_mean(x))

    with pytest.raises(ValueError, match="from the data"):
        train(step)
    assert not train.changed


def test_a_table_that_the_graph_makes_and_that_stays_is_refused():
    def step(model, x, y):
        table = tf.raw_ops.MutableHashTableV2(
            shared_name="kept", key_dtype=tf.int64, value_dtype=tf.float32
        )
        tf.raw_ops.LookupTableInsertV2(
            table_handle=table, keys=tf.constant([0], tf.int64), values=x[0, :1]
        )
        model.update(x, y)

    with pytest.raises(ValueError, match="from the data"):
        train(step)
    assert not train.changed


def test_an_inner_function_and_metrics_around_it_are_fine():
    def step(model, x, y):
        model.tracker.update_state(model.errors(x, y))
        tf.function(model.update)(x, y)
        tf.function(lambda: model.tracker.update_state(x))()

    model = train(step)
    assert train.changed
    assert model.tracker.count.numpy() > 0


def test_a_batch_that_a_function_fetches_by_itself_is_data():
    x, _ = data()
    batches = iter(tf.data.Dataset.from_tensor_slices(x).repeat().batch(EXAMPLES))

    def step(model, x, y):
        model.update(x, y)
        more = tf.function(lambda: next(batches))()
        model.state.assign(tf.reduce_mean(more))

    with pytest.raises(ValueError, match=REFUSED):
        train(step)
    assert not train.changed


def test_a_data_set_as_a_tensor_is_data():
    x, _ = data()
    rows = tf.data.Dataset.from_tensor_slices(x)

    def step(model, x, y):
        model.update(x, y)
        model.state.assign(rows.reduce(0.0, lambda s, row: s + tf.reduce_sum(row)))

    with pytest.raises(ValueError, match=REFUSED):
        train(step)
    assert not train.changed
