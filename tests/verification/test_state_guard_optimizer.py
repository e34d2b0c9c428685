"""The optimizer's own variables change by the private update, and by nothing else."""

import keras
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from tests.verification.guarded_models import data, train

REFUSED = r"updates the optimizer's variable .* from the data.*Only the private update"


def learning_rate(model, x):
    model.optimizer.learning_rate.assign(tf.reduce_sum(x))


def iterations(model, x):
    count = tf.reduce_sum(tf.cast(x > 1.0, model.optimizer.iterations.dtype))
    model.optimizer.iterations.assign_add(count)


def momentum(model, x):
    slot = model.optimizer.variables[2]
    slot.assign(tf.ones(slot.shape) * tf.reduce_sum(x))


def releases(model, x):
    model.optimizer.releases.assign(tf.cast(tf.reduce_sum(x), tf.int64))


def by_a_function(model, x):
    tf.function(lambda x: learning_rate(model, x))(x)


def by_a_closure(model, x):
    tf.function(lambda: learning_rate(model, x))()


def by_a_branch(model, x):
    def halve():
        model.optimizer.learning_rate.assign(0.5)
        return 0

    tf.cond(tf.reduce_any(x > 2.0), halve, lambda: 0)


def by_a_loop(model, x):
    def body(i):
        model.optimizer.learning_rate.assign(x[i, 0])
        return i + 1

    tf.while_loop(lambda i: i < 3, body, [0])


def by_how_often(model, x):
    def body(i):
        model.optimizer.learning_rate.assign(0.1)
        return i + 1.0

    tf.while_loop(lambda i: i < tf.reduce_sum(x), body, [0.0])


def by_a_metric(model, x):
    model.tracker.update_state(x)
    model.optimizer.learning_rate.assign(model.tracker.result())


def by_a_metric_in_a_function(model, x):
    model.tracker.update_state(x)
    tf.function(
        lambda: model.optimizer.learning_rate.assign(model.tracker.result()),
        autograph=False,
    )()


def by_a_shape(model, x):
    large = tf.shape(tf.boolean_mask(x, x > 1.0))[0]
    model.optimizer.learning_rate.assign(tf.cast(large, tf.float32))


def by_a_shape_in_a_function(model, x):
    pick = tf.function(lambda x: tf.range(tf.reduce_sum(tf.cast(x > 1, tf.int32))))
    large = tf.size(pick(x))
    model.optimizer.learning_rate.assign(tf.cast(large, tf.float32))


ATTACKS = [
    learning_rate,
    iterations,
    momentum,
    releases,
    by_a_function,
    by_a_closure,
    by_a_branch,
    by_a_loop,
    by_how_often,
    by_a_metric,
    by_a_metric_in_a_function,
    by_a_shape,
    by_a_shape_in_a_function,
]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("when", ["before", "after", "outside"])
def test_data_in_the_optimizer_are_refused(attack, when):
    def step(model, x, y):
        if when == "before":
            attack(model, x)
        if when == "outside":
            tf.function(lambda: model.update(x, y))()
        else:
            model.update(x, y)
        if when != "before":
            attack(model, x)

    with pytest.raises(ValueError, match=REFUSED):
        train(step)
    assert not train.changed


def test_data_in_the_optimizer_are_refused_under_xla():
    def step(model, x, y):
        model.update(x, y)
        learning_rate(model, x)

    with pytest.raises(ValueError, match=REFUSED):
        train(step, jit_compile=True)
    assert not train.changed


def test_a_learning_rate_that_reads_the_data_inside_of_the_update_is_refused():
    """The update itself is checked, too, behind the noise."""

    class FollowsLoss(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.1 / (1.0 + self.model.tracker.result())

        def get_config(self):
            return {}

    schedule = FollowsLoss()

    def step(model, x, y):
        schedule.model = model
        model.tracker.update_state(x)
        model.update(x, y)

    with pytest.raises(ValueError, match=r"updates the .* from the data"):
        train(step, dp.optimizers.DPSGD(learning_rate=schedule))
    assert not train.changed


def test_exact_sums_of_an_unfinished_lot_go_nowhere_else():
    optimizer = dp.optimizers.DPSGD(gradient_accumulation_steps=2)

    def step(model, x, y):
        model.update(x, y)
        lot = next(v for v in model.optimizer.variables if "lot" in v.path)
        model.state.assign(tf.reduce_sum(lot))

    with pytest.raises(ValueError, match=r"updates the weight .*state.* from the data"):
        train(step, optimizer, batch_size=4)
    assert not train.changed


def test_nobody_adds_to_an_unfinished_lot():
    optimizer = dp.optimizers.DPSGD(gradient_accumulation_steps=2)

    def step(model, x, y):
        model.update(x, y)
        lot = next(v for v in model.optimizer.variables if "lot" in v.path)
        lot.assign_add(tf.ones(lot.shape) * tf.reduce_sum(x))

    with pytest.raises(ValueError, match=REFUSED):
        train(step, optimizer, batch_size=4)
    assert not train.changed


def test_a_custom_loop_is_guarded_without_knowing_the_model():
    x, y = map(tf.constant, data())
    model = keras.Sequential([keras.Input([5]), keras.layers.Dense(1)])
    optimizer = dp.optimizers.DPSGD()
    metric = keras.metrics.Mean()

    @tf.function
    def step(x, y, attack):
        errors = tf.reduce_mean(tf.square(y - model(x)), axis=-1)
        optimizer.minimize(errors, model.trainable_variables)
        metric.update_state(errors)
        if attack:
            optimizer.learning_rate.assign(tf.reduce_sum(x))

    step(x, y, attack=False)
    assert int(optimizer.releases) == 1
    with pytest.raises(ValueError, match=REFUSED):
        step(x, y, attack=True)
    assert int(optimizer.releases) == 1


@pytest.mark.parametrize("jit_compile", [False, True])
def test_what_does_not_depend_on_the_data_may_be_written(jit_compile):
    def step(model, x, y):
        optimizer = model.optimizer
        optimizer.learning_rate.assign(0.1)
        model.update(x, y)
        optimizer.learning_rate.assign(0.99 * optimizer.learning_rate)
        model.tracker.update_state(model.errors(x, y))
        model.state.assign(tf.reduce_sum(model.dense.kernel))

    train(step, jit_compile=jit_compile)
    assert train.changed


@pytest.mark.parametrize(
    "arguments",
    [
        {"gradient_accumulation_steps": 2},
        {"use_ema": True, "ema_momentum": 0.9},
        {"weight_decay": 0.01, "global_clipnorm": 1.0},
        {"learning_rate": keras.optimizers.schedules.CosineDecay(0.1, 10)},
        {"secure_noise": True},
        {"num_microbatches": 4},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_every_option_of_an_optimizer_passes_its_own_guard(arguments, jit_compile):
    train(
        lambda model, x, y: model.update(x, y),
        dp.optimizers.DPAdam(**arguments),
        jit_compile=jit_compile and "secure_noise" not in arguments,
        epochs=2,
        batch_size=8,
    )
    assert train.changed


def test_a_metric_that_holds_the_learning_rate_makes_no_metric_of_it():
    def step(model, x, y):
        rate = model.optimizer._learning_rate
        model.tracker.held = rate
        assert any(rate is variable for variable in model.tracker.variables)
        model.update(x, y)
        model.tracker.held.assign(tf.reduce_sum(x))

    with pytest.raises(ValueError, match=REFUSED):
        train(step)
    assert not train.changed
