"""A private update without noise is the clipped mean of per-example gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp

L = keras.layers
CLIP = 0.5


def cnn():
    x = np.random.default_rng(1).normal(size=(12, 14, 14, 1)).astype("float32")
    y = np.random.default_rng(2).integers(0, 5, 12)
    model = keras.Sequential(
        [
            keras.Input([14, 14, 1]),
            L.Conv2D(4, 5, strides=2, padding="same", activation="relu"),
            L.MaxPool2D(2, 1),
            L.Conv2D(6, 3, strides=2, activation="relu"),
            L.Flatten(),
            L.Dense(5, activation="softmax"),
        ]
    )
    return model, x, y, "sparse_categorical_crossentropy"


def mlp():
    x = np.random.default_rng(1).normal(size=(12, 9)).astype("float32")
    y = np.random.default_rng(2).normal(size=(12, 2)).astype("float32")
    model = keras.Sequential(
        [keras.Input([9]), L.Dense(8, activation="tanh"), L.Dense(2)]
    )
    return model, x, y, "mean_squared_error"


def attention():
    x = np.random.default_rng(1).integers(0, 30, (12, 7))
    y = np.random.default_rng(2).integers(0, 3, 12)
    tokens = keras.Input([7], dtype="int32")
    hidden = L.Embedding(30, 8)(tokens)
    hidden = L.LayerNormalization()(hidden + L.MultiHeadAttention(2, 4)(hidden, hidden))
    hidden = L.GlobalAveragePooling1D()(L.Dense(8, activation="gelu")(hidden))
    model = keras.Model(tokens, L.Dense(3, activation="softmax")(hidden))
    return model, x, y, "sparse_categorical_crossentropy"


def shared_layers_two_outputs():
    generator = np.random.default_rng(1)
    x = {
        "a": generator.normal(size=(12, 6)).astype("float32"),
        "b": generator.normal(size=(12, 6)).astype("float32"),
    }
    y = [
        generator.normal(size=(12, 1)).astype("float32"),
        generator.integers(0, 3, 12),
    ]
    a, b = keras.Input([6], name="a"), keras.Input([6], name="b")
    shared = L.Dense(6, activation="tanh")
    joined = L.Concatenate()([shared(shared(a)), shared(b)])
    model = keras.Model(
        {"a": a, "b": b}, [L.Dense(1)(joined), L.Dense(3, activation="softmax")(joined)]
    )
    return model, x, y, ["mean_squared_error", "sparse_categorical_crossentropy"]


def lstm():
    x = np.random.default_rng(1).integers(0, 30, (12, 7))
    y = np.random.default_rng(2).integers(0, 3, 12)
    model = keras.Sequential(
        [
            keras.Input([7], dtype="int32"),
            L.Embedding(30, 6, mask_zero=True),
            L.LSTM(5),
            L.Dense(3, activation="softmax"),
        ]
    )
    return model, x, y, "sparse_categorical_crossentropy"


def rows(structure, start, stop):
    return keras.tree.map_structure(lambda value: value[start:stop], structure)


def per_microbatch_gradients(model, x, y, loss, group):
    """Ground truth: an eager backward pass for each microbatch."""
    losses = [keras.losses.get(name) for name in np.atleast_1d(loss)]
    count = len(keras.tree.flatten(x)[0]) // group
    result = []
    for number in range(count):
        part = number * group, (number + 1) * group
        with tf.GradientTape() as tape:
            predictions = keras.tree.flatten(model(rows(x, *part), training=True))
            targets = rows(y, *part) if isinstance(y, list) else [rows(y, *part)]
            total = sum(
                tf.reduce_mean(function(target, prediction))
                for function, target, prediction in zip(
                    losses, targets, predictions, strict=True
                )
            )
        gradients = tape.gradient(total, model.trainable_variables)
        result.append([tf.convert_to_tensor(g).numpy() for g in gradients])
    return result


def clipped_mean(gradients, clip):
    total = [np.zeros_like(value) for value in gradients[0]]
    for row in gradients:
        norm = np.sqrt(sum(np.sum(np.square(value)) for value in row))
        for into, value in zip(total, row, strict=True):
            into += value * min(1.0, clip / norm)
    return [value / len(gradients) for value in total]


def assert_update(model, before, mean, learning_rate=1.0):
    scale = max(np.max(np.abs(value)) for value in mean)
    for variable, old, gradient in zip(
        model.trainable_variables, before, mean, strict=True
    ):
        np.testing.assert_allclose(
            old - variable.numpy(),
            learning_rate * gradient,
            rtol=1e-5,
            atol=1e-5 * scale,
        )


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("microbatches", [None, 3])
@pytest.mark.parametrize(
    "make", [cnn, mlp, attention, shared_layers_two_outputs], ids=lambda f: f.__name__
)
def test_update_is_the_clipped_mean(make, microbatches, jit_compile):
    model, x, y, loss = make()
    check_one_step(model, x, y, loss, microbatches, jit_compile)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("microbatches", [None, 3])
def test_update_of_a_recurrent_model_is_the_clipped_mean(microbatches, jit_compile):
    check_one_step(*lstm(), microbatches, jit_compile)


def check_one_step(model, x, y, loss, microbatches, jit_compile):
    group = 1 if microbatches is None else 12 // microbatches
    expected = clipped_mean(per_microbatch_gradients(model, x, y, loss, group), CLIP)
    before = [variable.numpy() for variable in model.trainable_variables]
    model.compile(
        dp.optimizers.DPSGD(
            learning_rate=1.0,
            l2_norm_clip=CLIP,
            noise_multiplier=0.0,
            num_microbatches=microbatches,
        ),
        loss=loss,
        jit_compile=jit_compile,
    )
    model.fit(x, y, batch_size=12, shuffle=False, verbose=0)
    assert_update(model, before, expected)
    assert int(model.optimizer.releases.numpy()) == 1


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum", "mean", None])
def test_every_reduction_of_the_loss_gives_the_same_update(reduction):
    model, x, y, loss = mlp()
    expected = clipped_mean(per_microbatch_gradients(model, x, y, loss, 1), CLIP)
    before = [variable.numpy() for variable in model.trainable_variables]
    model.compile(
        dp.optimizers.DPSGD(learning_rate=1.0, l2_norm_clip=CLIP, noise_multiplier=0.0),
        loss=keras.losses.MeanSquaredError(reduction=reduction),
    )
    model.fit(x, y, batch_size=12, verbose=0)
    assert_update(model, before, expected)


def test_a_loss_function_that_reduces_by_itself_is_taken_apart():
    model, x, y, loss = mlp()
    expected = clipped_mean(per_microbatch_gradients(model, x, y, loss, 1), CLIP)
    before = [variable.numpy() for variable in model.trainable_variables]
    model.compile(
        dp.optimizers.DPSGD(learning_rate=1.0, l2_norm_clip=CLIP, noise_multiplier=0.0),
        loss=lambda y, p: keras.ops.mean(keras.ops.square(y - p)),
    )
    model.fit(x, y, batch_size=12, verbose=0)
    assert_update(model, before, expected)


def test_loss_weights_and_sample_weights_scale_the_loss_before_the_bound():
    model, x, y, loss = mlp()
    weights = np.linspace(0.0, 2.0, 12).astype("float32")
    gradients = per_microbatch_gradients(model, x, y, loss, 1)
    gradients = [
        [3.0 * weight * value for value in row]
        for weight, row in zip(weights, gradients, strict=True)
    ]
    gradients[0] = [np.full_like(value, 1e-30) for value in gradients[0]]
    expected = clipped_mean(gradients, CLIP)
    before = [variable.numpy() for variable in model.trainable_variables]
    model.compile(
        dp.optimizers.DPSGD(learning_rate=1.0, l2_norm_clip=CLIP, noise_multiplier=0.0),
        loss=loss,
        loss_weights=[3.0],
    )
    model.fit(x, y, sample_weight=weights, batch_size=12, verbose=0)
    assert_update(model, before, expected)


def test_penalties_on_weights_are_added_after_the_bound():
    model, x, y, loss = mlp()
    expected = clipped_mean(per_microbatch_gradients(model, x, y, loss, 1), CLIP)
    penalised = keras.Sequential(
        [
            keras.Input([9]),
            L.Dense(8, activation="tanh", kernel_regularizer=keras.regularizers.L2(10)),
            L.Dense(2),
        ]
    )
    penalised.set_weights(model.get_weights())
    before = [variable.numpy() for variable in penalised.trainable_variables]
    expected[0] = expected[0] + 2 * 10 * before[0]
    penalised.compile(
        dp.optimizers.DPSGD(learning_rate=1.0, l2_norm_clip=CLIP, noise_multiplier=0.0),
        loss=loss,
    )
    penalised.fit(x, y, batch_size=12, verbose=0)
    assert_update(penalised, before, expected)


def test_a_subclassed_model_that_is_not_built_yet_trains():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = L.Dense(4, activation="relu")
            self.out = L.Dense(2)

        def call(self, x):
            return self.out(self.hidden(x))

    _, x, y, loss = mlp()
    model = Model()
    model.compile(dp.optimizers.DPAdam(learning_rate=0.01), loss=loss)
    model.fit(x, y, batch_size=6, epochs=2, verbose=0)
    assert int(model.optimizer.releases.numpy()) == 4


def test_division_is_by_the_public_batch_size_not_the_realised_one():
    model, x, y, loss = mlp()
    x, y = x[:11], y[:11]  # Batches of 4, 4 and 3.
    gradients = per_microbatch_gradients(model, x, y, loss, 1)
    before = [variable.numpy() for variable in model.trainable_variables]
    optimizer = dp.optimizers.DPSGD(
        learning_rate=1.0,
        l2_norm_clip=CLIP,
        noise_multiplier=0.0,
        expected_batch_size=20,
    )
    model.compile(optimizer, loss=loss)
    model.fit(x, y, batch_size=11, verbose=0)
    mean = [value * 11 / 20 for value in clipped_mean(gradients, CLIP)]
    assert_update(model, before, mean)


@pytest.mark.parametrize("name", ["DPAdam", "DPAdamW", "DPAdagrad", "DPRMSprop"])
def test_other_optimizers_see_the_clipped_mean(name):
    model, x, y, loss = mlp()
    twin = keras.models.clone_model(model)
    twin.set_weights(model.get_weights())
    mean = clipped_mean(per_microbatch_gradients(model, x, y, loss, 1), CLIP)
    plain = getattr(keras.optimizers, name.removeprefix("DP"))(learning_rate=0.01)
    plain.build(twin.trainable_variables)
    plain.apply([tf.constant(value) for value in mean], twin.trainable_variables)
    private = getattr(dp.optimizers, name)(
        learning_rate=0.01, l2_norm_clip=CLIP, noise_multiplier=0.0
    )
    model.compile(private, loss=loss)
    model.fit(x, y, batch_size=12, verbose=0)
    for ours, theirs in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_make_private_serves_any_keras_optimizer():
    model, x, y, loss = mlp()
    optimizer = dp.optimizers.make_private(
        keras.optimizers.Lion,
        learning_rate=1e-3,
        l2_norm_clip=1.0,
        noise_multiplier=0.5,
    )
    model.compile(optimizer, loss=loss)
    model.fit(x, y, batch_size=6, verbose=0)
    assert int(optimizer.releases.numpy()) == 2


@pytest.mark.parametrize("how", ["graph", "eager function", "eager tape"])
def test_minimize_in_a_custom_loop_gives_the_same_update(how):
    model, x, y, loss = mlp()
    expected = clipped_mean(per_microbatch_gradients(model, x, y, loss, 1), CLIP)
    before = [variable.numpy() for variable in model.trainable_variables]
    optimizer = dp.optimizers.DPSGD(
        learning_rate=1.0, l2_norm_clip=CLIP, noise_multiplier=0.0
    )

    def losses():
        return keras.losses.mean_squared_error(y, model(x))

    def step():
        with tf.GradientTape() as tape:
            vector = losses()
        optimizer.minimize(vector, model.trainable_variables, tape=tape)

    if how == "graph":
        tf.function(step)()
    elif how == "eager tape":
        with pytest.warns(UserWarning, match="cannot be verified"):
            step()
    else:
        optimizer.minimize(losses, model.trainable_variables)
    assert_update(model, before, expected)


def test_minimize_of_a_function_sees_the_batch_of_each_call():
    # One function object, whose data change: a trace that is kept would train on
    # the first batch for ever.
    model, x, y, loss = mlp()
    optimizer = dp.optimizers.DPSGD(
        learning_rate=1.0, l2_norm_clip=CLIP, noise_multiplier=0.0
    )
    start = model.get_weights()
    batch = {}

    def losses():
        return keras.losses.mean_squared_error(batch["y"], model(batch["x"]))

    for scale in (1.0, -0.5):
        model.set_weights(start)
        batch.update(x=tf.constant(scale * x), y=tf.constant(y))
        expected = clipped_mean(
            per_microbatch_gradients(model, scale * x, y, loss, 1), CLIP
        )
        before = [variable.numpy() for variable in model.trainable_variables]
        optimizer.minimize(losses, model.trainable_variables)
        assert_update(model, before, expected)


def test_minimize_of_a_function_trains_the_variables_of_each_call():
    model, x, y, _ = mlp()
    optimizer = dp.optimizers.DPSGD(learning_rate=1.0, noise_multiplier=0.0)
    optimizer.build(model.trainable_variables)

    def losses():
        return keras.losses.mean_squared_error(y, model(x))

    first, last = model.trainable_variables[0], model.trainable_variables[-1]
    optimizer.minimize(losses, [first])
    before = first.numpy()
    optimizer.minimize(losses, [last])
    np.testing.assert_array_equal(first.numpy(), before)
    assert int(optimizer.releases.numpy()) == 2
