"""Data may not decide whether, or how often, a private update happens."""

import keras
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from tests.verification.guarded_models import EXAMPLES, FEATURES, Stepping, data, train

REFUSED = "The data decide whether the private update happens"
# Every update in a loop of `fit` is refused, whoever ends the loop: the lot is the same.
REFUSED_LOOP = f"{REFUSED}|A private update inside of a TensorFlow loop"
LOOPS = ("loop", "loop_that_data_end", "autograph_loop")


def is_finite(x):
    return tf.reduce_all(tf.math.is_finite(x))


def branch(model, x, y):
    def update():
        model.update(x, y)
        return 1

    tf.cond(is_finite(model.errors(x, y)), update, lambda: 0)


def other_branch(model, x, y):
    def update():
        model.update(x, y)
        return 1

    tf.cond(tf.reduce_any(x > 9.0), lambda: 0, update)


def keras_branch(model, x, y):
    def update():
        model.update(x, y)
        return 1

    keras.ops.cond(is_finite(x), update, lambda: 0)


def case(model, x, y):
    def update():
        model.update(x, y)
        return 1

    tf.case([(is_finite(x), update)], default=lambda: 0)


def switch_case(model, x, y):
    def update():
        model.update(x, y)
        return 1

    tf.switch_case(tf.cast(is_finite(x), tf.int32), [lambda: 0, update])


def autograph(model, x, y):
    @tf.function
    def maybe(x, y):
        if is_finite(x):
            model.update(x, y)

    maybe(x, y)


def function_in_branch(model, x, y):
    def update():
        tf.function(lambda: model.update(x, y))()
        return 1

    tf.cond(is_finite(x), update, lambda: 0)


def branch_in_branch(model, x, y):
    def update():
        model.update(x, y)
        return 1

    tf.cond(
        tf.greater(model.optimizer.iterations, -1),
        lambda: tf.cond(is_finite(x), update, lambda: 0),
        lambda: 0,
    )


def branch_in_data_branch(model, x, y):
    def update():
        model.update(x, y)
        return 1

    tf.cond(
        is_finite(x),
        lambda: tf.cond(tf.greater(model.optimizer.iterations, -1), update, lambda: 0),
        lambda: 0,
    )


def loop(model, x, y):
    def body(i):
        model.update(x, y)
        return i + 1.0

    tf.while_loop(lambda i: i < tf.minimum(2.0, tf.reduce_sum(x)), body, [0.0])


def loop_that_data_end(model, x, y):
    def body(i, go_on):
        model.update(x, y)
        return i + 1, is_finite(x)

    tf.while_loop(lambda i, go_on: go_on, body, [0, True], maximum_iterations=2)


def autograph_loop(model, x, y):
    @tf.function
    def several(x, y):
        for row in tf.range(3):
            if x[row, 0] > 0:
                break
            model.update(x, y)

    several(x, y)


def predicate_by_a_metric(model, x, y):
    def update():
        model.update(x, y)
        return 1

    model.tracker.update_state(x)
    tf.cond(model.tracker.result() < 10.0, update, lambda: 0)


def predicate_by_an_argument(model, x, y):
    @tf.function
    def maybe(x, y, go_on):
        if go_on:
            model.update(x, y)

    maybe(x, y, is_finite(x))


ATTACKS = [
    branch,
    other_branch,
    keras_branch,
    case,
    switch_case,
    autograph,
    function_in_branch,
    branch_in_branch,
    branch_in_data_branch,
    loop,
    loop_that_data_end,
    autograph_loop,
    predicate_by_a_metric,
    predicate_by_an_argument,
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_update_that_data_decide_about_is_refused(attack):
    refused = REFUSED_LOOP if attack.__name__ in LOOPS else REFUSED
    with pytest.raises(ValueError, match=refused):
        train(attack)
    assert not train.changed


@pytest.mark.parametrize("attack", [branch, loop])
def test_an_update_that_data_decide_about_is_refused_under_xla(attack):
    refused = REFUSED_LOOP if attack.__name__ in LOOPS else REFUSED
    with pytest.raises(ValueError, match=refused):
        train(attack, jit_compile=True)
    assert not train.changed


def test_a_batch_of_a_lot_that_data_decide_about_is_refused():
    optimizer = dp.optimizers.DPSGD(gradient_accumulation_steps=2)
    # Whatever decides: of data with passes no lot may be left out.
    with pytest.raises(ValueError, match="may leave lots out"):
        train(branch, optimizer, batch_size=4)
    assert not train.changed


def test_losses_from_outside_of_the_branch_are_refused():
    def step(model, x, y):
        errors = model.errors(x, y)

        def update():
            model.optimizer.minimize(errors, model.trainable_variables)
            return 1

        tf.cond(is_finite(errors), update, lambda: 0)

    with pytest.raises(ValueError):
        train(step)
    assert not train.changed


def test_apply_gradients_in_a_branch_is_refused():
    """As published code skips a batch whose loss is not finite."""

    def step(model, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model.errors(x, y))
            scaled = model.optimizer.scale_loss(loss)
        weights = model.trainable_variables
        gradients = tape.gradient(scaled, weights)

        def update():
            model.optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return 1

        tf.cond(tf.math.is_finite(loss), update, lambda: 0)

    with pytest.raises(ValueError):
        train(step)
    assert not train.changed


def test_a_function_that_was_traced_before_is_guarded_where_it_is_called():
    """The update is not traced again: only the call is seen."""
    inner = []

    def step(model, x, y):
        if not inner:
            inner.append(tf.function(model.update, reduce_retracing=True))
        if model.attacks:
            tf.cond(is_finite(x), lambda: inner[0](x, y) or 1, lambda: 0)
        else:
            inner[0](x, y)

    x, y = data()

    model = Stepping(step)
    model.attacks = False
    model(x)
    model.compile(dp.optimizers.DPSGD())
    model.fit(x, y, batch_size=EXAMPLES, verbose=0)
    assert int(model.optimizer.releases) == 1
    model.attacks = True
    model.make_train_function(force=True)
    with pytest.raises(ValueError, match=REFUSED):
        model.fit(x, y, batch_size=EXAMPLES, verbose=0)
    assert int(model.optimizer.releases) == 1


def test_a_custom_loop_may_not_leave_it_to_the_data():
    x, y = map(tf.constant, data())
    model = keras.Sequential([keras.Input([FEATURES]), keras.layers.Dense(1)])
    optimizer = dp.optimizers.DPSGD()

    @tf.function
    def step(x, y):
        if is_finite(x):
            errors = tf.reduce_mean(tf.square(y - model(x)), axis=-1)
            optimizer.minimize(errors, model.trainable_variables)

    with pytest.raises(ValueError, match=REFUSED):
        step(x, y)
    assert int(optimizer.releases) == 0


def by_a_counter(model, x, y):
    def update():
        model.update(x, y)
        return 1

    tf.cond(model.optimizer.iterations % 2 == 0, update, lambda: 0)


def test_what_does_not_depend_on_the_data_may_decide():
    train(by_a_counter)
    assert train.changed


@pytest.mark.parametrize("arguments", [{}, {"gradient_accumulation_steps": 2}])
@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_lots_and_several_steps_at_once_are_fine(arguments, steps_per_execution):
    x, y = data()
    model = keras.Sequential([keras.Input([FEATURES]), keras.layers.Dense(1)])
    model.compile(
        dp.optimizers.DPSGD(**arguments),
        "mse",
        metrics=["mae"],
        steps_per_execution=steps_per_execution,
    )
    model.fit(x, y, batch_size=4, epochs=2, verbose=0)
    lots = arguments.get("gradient_accumulation_steps", 1)
    assert int(model.optimizer.releases) == 8 // lots


def test_a_loop_over_batches_in_one_function_is_fine():
    x, y = data()
    model = keras.Sequential([keras.Input([FEATURES]), keras.layers.Dense(1)])
    optimizer = dp.optimizers.DPSGD()
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(4, drop_remainder=True)
    optimizer.build(model.trainable_variables)

    @tf.function
    def epoch():
        for x, y in batches:
            errors = tf.reduce_mean(tf.square(y - model(x)), axis=-1)
            optimizer.minimize(errors, model.trainable_variables)

    epoch()
    assert int(optimizer.releases) == 4
