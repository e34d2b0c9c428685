"""`physical_batch_size` and `memory_limit`: a batch in parts, and the same update."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.optimizers import parts
from keras_dp_ext.optimizers.memory_estimate import StepMemory
from keras_dp_ext.optimizers.rows_at_a_time import bytes_of

ROWS, BATCH = 50, 23
GENERATOR = np.random.default_rng(5)
X = GENERATOR.normal(size=[ROWS, 9, 9, 2]).astype(np.float32)
Y = GENERATOR.integers(0, 3, ROWS)


def convolutional(regularizer=None):
    return keras.Sequential(
        [
            keras.Input([9, 9, 2]),
            keras.layers.Conv2D(
                6, 3, activation="relu", kernel_regularizer=regularizer
            ),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )


def trained(
    name="DPSGD",
    make=convolutional,
    data=None,
    jit=False,
    fit=None,
    metrics=("accuracy",),
    compiled=None,
    **arguments,
):
    """A model after an epoch with reproducible noise, and the logs."""
    keras.utils.set_random_seed(3)
    model = make()
    model.compile(
        getattr(dp.optimizers, name)(learning_rate=0.5, noise_seed=7, **arguments),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=list(metrics),
        jit_compile=jit,
        **(compiled or {}),
    )
    if data is None:
        fit = {"y": Y, "batch_size": BATCH, "shuffle": False, **(fit or {})}
        data = X
    history = model.fit(data, verbose=0, **(fit or {}))
    return model, history.history


@pytest.fixture
def sizes(monkeypatch):
    """What parts were made of: `(rows if known, most, static size)`."""
    seen = []
    original = parts._size_of_parts

    def recorded(rows, most, together):
        found = original(rows, most, together)
        seen.append((rows, most, found))
        return found

    monkeypatch.setattr(parts, "_size_of_parts", recorded)
    return seen


def assert_same(one, other, atol=1e-6):
    for first, second in zip(one[0].weights, other[0].weights, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-6, atol=atol)
    assert one[1].keys() == other[1].keys()
    for name, values in one[1].items():
        np.testing.assert_allclose(values, other[1][name], rtol=1e-5)
    assert int(one[0].optimizer.releases) == int(other[0].optimizer.releases)


CASES = {
    "DPSGD": {},
    "DPAdam": {},
    "DPSGD, in lots": {"gradient_accumulation_steps": 2},
    "DPSGD, secure noise": {"secure_noise": True},
    "TanhSGD": {},
    "DirectionalSGD": {},
    "EncodedSGD": {"codebook": dp.bounding.Codebook(size=8)},
    "QuantileSGD": {},
    "BandMFSGD": {"bands": 2, "steps": 3},
}


@pytest.mark.parametrize("case", CASES)
def test_the_update_is_that_of_the_whole_batch(case, sizes):
    arguments = CASES[case]
    name = case.split(",")[0]
    whole = trained(name, **arguments)
    in_parts = trained(name, physical_batch_size=7, **arguments)
    assert_same(whole, in_parts)
    assert {most for _, most, _ in sizes} == {7}


def test_the_size_of_the_last_batch_is_not_known(sizes):
    trained(physical_batch_size=7)
    assert {rows for rows, _, _ in sizes} == {None}


def test_a_batch_that_fits_is_not_cut(sizes):
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(10, drop_remainder=True)
    assert_same(trained(data=dataset), trained(data=dataset, physical_batch_size=10))
    assert not sizes


@pytest.mark.parametrize("jit", [False, True])
def test_equal_parts_of_a_batch_of_known_size_also_under_xla(jit, sizes):
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(24, drop_remainder=True)
    whole = trained(data=dataset, jit=jit)
    assert_same(whole, trained(data=dataset, jit=jit, physical_batch_size=9))
    assert set(sizes) == {(24, 9, 8)}


def test_a_lot_of_millions_is_cut_into_a_thousand_parts():
    """Their product is beyond 32-bit integers."""
    rows = 2_100_001
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1, use_bias=False)])
    model.compile(
        dp.optimizers.DPSGD(
            learning_rate=1.0,
            noise_multiplier=0.0,
            l2_norm_clip=0.5,
            physical_batch_size=2048,
        ),
        loss=lambda y, p: -tf.reduce_sum(y * p, axis=-1),
    )
    (before,) = model.get_weights()
    ones = np.ones([rows, 1], np.float32)
    model.fit(ones, ones, batch_size=rows, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0] - before, 0.5, rtol=1e-3)


def test_padding_counts_nowhere(sizes):
    def lots():
        return dp.data.poisson_batches(X, Y, batch_size=10, seed=3, steps_per_epoch=4)

    whole = trained(data=lots())
    in_parts = trained(data=lots(), physical_batch_size=6)
    assert_same(whole, in_parts)
    assert sizes
    one, other = (model.optimizer for model, _ in (whole, in_parts))
    assert one.ledger.epsilon(delta=1e-5) == other.ledger.epsilon(delta=1e-5) < np.inf


def test_an_empty_lot_has_noise_and_counts():
    lots = dp.data.poisson_batches(
        X, Y, batch_size=1, sampling_rate=1e-9, seed=3, steps_per_epoch=2
    )
    model, _ = trained(data=lots, physical_batch_size=2)
    keras.utils.set_random_seed(3)
    fresh = convolutional()
    moved = [
        np.abs(after - before).mean()
        for after, before in zip(model.get_weights(), fresh.get_weights(), strict=True)
    ]
    assert min(moved) > 0.01
    assert int(model.optimizer.releases) == 2


def test_a_row_that_is_not_finite_counts_as_zero():
    x = X.copy()
    x[4] = np.nan
    whole = trained(data=x, fit={"y": Y, "batch_size": BATCH, "shuffle": False})
    in_parts = trained(
        data=x,
        fit={"y": Y, "batch_size": BATCH, "shuffle": False},
        physical_batch_size=5,
    )
    for one, other in zip(
        whole[0].get_weights(), in_parts[0].get_weights(), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-6)
        assert np.isfinite(one).all()


def test_penalties_on_the_weights_count_once(sizes):
    def make():
        return convolutional(keras.regularizers.L2(0.3))

    assert_same(trained(make=make), trained(make=make, physical_batch_size=6))
    assert sizes


def test_people_stay_together(sizes):
    def lots():
        return dp.data.poisson_batches(
            X,
            Y,
            batch_size=3,
            seed=3,
            steps_per_epoch=2,
            user_ids=np.arange(ROWS) // 5,
            examples_per_user=4,
        )

    assert_same(trained(data=lots()), trained(data=lots(), physical_batch_size=10))
    assert {size % 4 for _, _, size in sizes} == {0}


def test_several_steps_per_execution(sizes):
    compiled = {"steps_per_execution": 2}
    assert_same(
        trained(compiled=compiled), trained(compiled=compiled, physical_batch_size=7)
    )
    assert sizes


def recurrent():
    return keras.Sequential(
        [
            keras.Input([9, 9, 2]),
            keras.layers.Reshape([9, 18]),
            keras.layers.LSTM(5),
            keras.layers.Dense(3),
        ]
    )


def test_loops_of_the_model(sizes):
    assert_same(trained(make=recurrent), trained(make=recurrent, physical_batch_size=6))
    assert sizes


def test_train_on_batch_and_several_inputs(sizes):
    def make():
        first, second = keras.Input([4], name="a"), keras.Input([5], name="b")
        joined = keras.layers.Concatenate()([first, second])
        model = keras.Model({"a": first, "b": second}, keras.layers.Dense(1)(joined))
        keras.utils.set_random_seed(2)
        for weight in model.weights:
            weight.assign(keras.random.normal(weight.shape, seed=1))
        return model

    def after(**arguments):
        model = make()
        model.compile(dp.optimizers.DPSGD(noise_seed=7, **arguments), "mse")
        x = {"a": X[:12, 0, :2].reshape(12, 4), "b": X[:12, 1:6, 0, 0]}
        for _ in range(2):
            model.train_on_batch(x, Y[:12].astype(np.float32)[:, None])
        return model.get_weights()

    for one, other in zip(after(), after(physical_batch_size=5), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert sizes


def test_a_train_step_that_calls_keras_own(sizes):
    class Logged(keras.Sequential):
        def train_step(self, data):
            logs = super().train_step(data)
            return {**logs, "twice": 2 * logs["loss"]}

    def make():
        return Logged(convolutional().layers)

    whole, in_parts = trained(make=make), trained(make=make, physical_batch_size=7)
    assert_same(whole, in_parts)
    assert sizes


def test_dropped_rows_are_counted_in_all_parts():
    x = X.copy()
    x[[1, 8, 22]] = np.inf
    keras.utils.set_random_seed(3)
    model = convolutional()
    model.compile(
        dp.optimizers.DPSGD(physical_batch_size=5),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    callback = dp.callbacks.DroppedExamples()
    logs = model.fit(x, Y, batch_size=25, verbose=0, callbacks=[callback]).history
    assert logs["dropped"] == [3]


@pytest.mark.replicas
def test_replicas_cut_their_shares(mirrored, sizes):
    def after(strategy, **arguments):
        keras.utils.set_random_seed(3)
        with strategy.scope():
            model = convolutional()
            model.compile(
                dp.optimizers.DPSGD(learning_rate=0.5, noise_seed=7, **arguments),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                jit_compile=False,
            )
        dataset = tf.data.Dataset.from_tensor_slices((X[:48], Y[:48]))
        model.fit(dataset.batch(24, drop_remainder=True), verbose=0)
        return model.get_weights()

    alone = after(tf.distribute.get_strategy())
    together = after(mirrored, physical_batch_size=5)
    assert sizes
    for one, both in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, both, atol=1e-6)


# What it must not hide ------------------------------------------------------------


def test_a_layer_that_mixes_examples_is_refused():
    def make():
        return keras.Sequential(
            [
                keras.Input([9, 9, 2]),
                keras.layers.BatchNormalization(),
                keras.layers.Flatten(),
                keras.layers.Dense(3),
            ]
        )

    with pytest.raises(ValueError, match=r"BatchNormalization|batch_normalization"):
        trained(make=make, physical_batch_size=7)


def test_state_that_keeps_data_is_refused():
    class Remembers(keras.layers.Layer):
        def build(self, shape):
            self.seen = self.add_weight(
                shape=[2], trainable=False, name="seen", initializer="zeros"
            )

        def call(self, x):
            self.seen.assign(keras.ops.mean(x, axis=[0, 1, 2]))
            return x

    def make():
        return keras.Sequential(
            [keras.Input([9, 9, 2]), Remembers(), *convolutional().layers]
        )

    with pytest.raises(ValueError, match="seen"):
        trained(make=make, physical_batch_size=7)


def test_two_updates_of_one_batch_are_two_releases():
    class Twice(keras.Sequential):
        def train_step(self, data):
            super().train_step(data)
            return super().train_step(data)

    def claim(**arguments):
        model, _ = trained(
            make=lambda: Twice(convolutional().layers),
            data=dp.data.poisson_batches(X, Y, batch_size=5, steps_per_epoch=2),
            **arguments,
        )
        assert int(model.optimizer.releases) == 4
        return model.optimizer.ledger.epsilon(delta=1e-5)

    assert claim(physical_batch_size=6) == pytest.approx(claim(), rel=1e-9)


def test_a_loop_of_ones_own_is_refused():
    optimizer = dp.optimizers.DPSGD(physical_batch_size=4)
    model = convolutional()

    @tf.function
    def step(x, y):
        losses = keras.losses.sparse_categorical_crossentropy(y, model(x), True)
        optimizer.minimize(losses, model.trainable_variables)

    with pytest.raises(ValueError, match=r"`physical_batch_size` works in"):
        step(tf.constant(X[:8]), tf.constant(Y[:8]))
    step(tf.constant(X[:4]), tf.constant(Y[:4]))


def test_a_train_step_of_ones_own_is_refused():
    class Own(keras.Sequential):
        def train_step(self, data):
            x, y = data
            losses = keras.losses.sparse_categorical_crossentropy(y, self(x), True)
            self.optimizer.minimize(losses, self.trainable_variables)
            return {"loss": tf.reduce_mean(losses)}

    with pytest.raises(ValueError, match=r"`memory_limit` works in"):
        trained(make=lambda: Own(convolutional().layers), memory_limit="1GB")


def with_two_inputs(jit=False):
    """A model in parts, and rows for one of its inputs."""
    image, other = keras.Input([3]), keras.Input([3])
    joined = keras.layers.Concatenate()([image, other])
    model = keras.Model([image, other], keras.layers.Dense(3)(joined))
    model.compile(
        dp.optimizers.DPSGD(physical_batch_size=4, expected_batch_size=8),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit,
    )
    return model, X[:, 0, 0, 0:1].repeat(3, axis=1)


def test_an_input_with_other_rows_is_refused():
    """Cut like the others, its rows would stand beside those of other examples."""
    model, x = with_two_inputs()
    lots = dp.data.poisson_batches(x, Y, batch_size=8)
    doubled = lots.map(lambda x, y, w: ((x, tf.repeat(x, 2, axis=0)), y, w))
    with pytest.raises(ValueError, match="a row for each example"):
        model.fit(doubled, verbose=0)


@pytest.mark.parametrize("known", [(None, None), (8, None), (None, 8)])
@pytest.mark.parametrize("jit", [False, True])
def test_an_input_with_other_rows_is_refused_where_sizes_are_not_known(known, jit):
    """Compiled, too: XLA drops assertions, and cuts what is longer in silence."""
    if jit and known == (None, None):
        pytest.skip("XLA needs parts of one size, and refuses it before")
    model, x = with_two_inputs(jit)
    rows, labels = known
    inputs = (tf.TensorSpec([rows, 3]), tf.TensorSpec([None, 3]))
    batches = tf.data.Dataset.from_generator(
        lambda: iter([((x[:8], x[:8].repeat(2, axis=0)), Y[:8])]),
        output_signature=(inputs, tf.TensorSpec([labels], tf.int64)),
    )
    before = model.get_weights()
    accountant = dp.callbacks.PrivacyAccountant(
        delta=1e-3, sampling=dp.accounting.Poisson(0.2)
    )
    message = "requested shape" if jit else "a row for each example"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        model.fit(batches, verbose=0, callbacks=[accountant])
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_xla_needs_equal_parts():
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(23, drop_remainder=True)
    with pytest.raises(ValueError, match="XLA needs parts of one size"):
        trained(data=dataset, jit=True, physical_batch_size=7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"physical_batch_size": 0},
            "`physical_batch_size` must be a positive integer",
        ),
        ({"physical_batch_size": 2.5}, "`physical_batch_size` must be a positive"),
        ({"memory_limit": "much"}, "`memory_limit` must be a number of bytes"),
        ({"memory_limit": 0}, "`memory_limit` must be a number of bytes"),
        ({"physical_batch_size": 2, "memory_limit": "1GB"}, "not both"),
        (
            {"physical_batch_size": 2, "num_microbatches": 2},
            "`num_microbatches` must be None",
        ),
    ],
)
def test_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        dp.optimizers.DPSGD(**arguments)


@pytest.mark.parametrize(
    "arguments", [{"physical_batch_size": 7}, {"memory_limit": "2GB"}]
)
def test_a_saved_model_keeps_it(arguments, tmp_path):
    model, _ = trained(**arguments)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras").optimizer
    for name, value in arguments.items():
        assert getattr(loaded, name) == loaded.get_config()[name] == value


# A limit --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2 * 10**9), ("1.5 gb", 15 * 10**8), ("3MiB", 3 * 2**20), (77, 77)],
)
def test_sizes_as_people_write_them(text, size):
    assert bytes_of(text) == size


def test_a_smaller_limit_makes_smaller_parts_and_the_same_update(sizes):
    whole = trained()
    for limit in ("70MB", "68MB"):
        assert_same(whole, trained(memory_limit=limit))
    found = [most for _, most, _ in sizes]
    assert found == sorted(found, reverse=True) and found[0] > found[-1] >= 1


def test_a_limit_below_the_weights_says_what_is_needed():
    with pytest.raises(
        ValueError, match=r"at least 68 MB.*Received: memory_limit=1000"
    ):
        trained(memory_limit=1000)


@pytest.mark.parametrize("make", [convolutional, recurrent])
def test_the_estimate_covers_what_the_forward_pass_holds(make):
    """By hand: inputs and results of every layer, and the steps of a loop."""
    model = make()

    @tf.function
    def loss(x):
        captured.append(tf.reduce_sum(model(x, training=True)))
        return captured[0]

    captured = []
    loss.get_concrete_function(tf.TensorSpec([8, 9, 9, 2]))
    estimate = StepMemory.of(captured[0], 8, model.trainable_variables)
    # A convolution, its activation and logits; the gates of each step.
    results = 7 * 7 * 6 * 2 + 3 if make is convolutional else 9 * 5 * 4
    assert estimate.of_each_row > 2 * 4 * results
    assert estimate.of_each_row < 20 * 2 * 4 * results
