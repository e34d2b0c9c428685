"""The tanh filter through plain Keras, and the epsilon that it reports."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp


def _data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 5)).astype("float32")
    return x, rng.standard_normal((12, 3)).astype("float32")


def _model():
    keras.utils.set_random_seed(2)
    return keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])


@pytest.mark.parametrize("guarantee", ["proven", "published"])
@pytest.mark.parametrize("chunk_bytes", [None, 200])
def test_one_step_equals_a_numpy_reading_of_algorithm_1(guarantee, chunk_bytes):
    x, y = _data()
    model = _model()
    kernel, bias = (w.astype("float64") for w in model.get_weights())
    model.compile(
        dp.optimizers.TanhSGD(
            learning_rate=0.7,
            output_range=2.0,
            active_range=3.0,
            l2_norm_clip=0.9,
            noise_multiplier=0.0,
            guarantee=guarantee,
            chunk_bytes=chunk_bytes,
        ),
        "mse",
    )
    model.fit(x, y, batch_size=12, epochs=1, shuffle=False, verbose=0)

    total = np.zeros(18)
    for features, target in zip(x, y, strict=True):  # One example to a microbatch.
        residual = 2 / 3 * (features @ kernel + bias - target)
        gradient = np.concatenate([np.outer(features, residual).ravel(), residual])
        filtered = 2.0 * np.tanh(gradient / 3.0)
        if guarantee == "proven":
            filtered *= min(1, 0.9 / np.linalg.norm(filtered))
        total += filtered
    update = -0.7 * total / 12
    ours = np.concatenate([np.ravel(w) for w in model.get_weights()])
    before = np.concatenate([kernel.ravel(), bias])
    np.testing.assert_allclose(ours - before, update, rtol=1e-4, atol=1e-6)


def test_seeded_noise_is_the_difference_to_a_step_without_noise():
    x, y = _data()
    weights = {}
    for multiplier in (0.0, 1.5):
        keras.utils.set_random_seed(2)
        wide = [keras.Input([5]), keras.layers.Dense(2000), keras.layers.Dense(3)]
        model = keras.Sequential(wide)
        optimizer = dp.optimizers.TanhSGD(
            learning_rate=1.0,
            noise_multiplier=multiplier,
            guarantee="published",
            noise_seed=3,
        )
        model.compile(optimizer, "mse")
        model.fit(x, y, batch_size=12, epochs=1, shuffle=False, verbose=0)
        weights[multiplier] = np.concatenate([np.ravel(w) for w in model.get_weights()])
    # Algorithm 1: (sum + N(0, sigma^2)) / number of microbatches.
    noise = 12 * (weights[0.0] - weights[1.5]) / 1.5
    assert noise.size == 18_003
    assert np.std(noise) == pytest.approx(1.0, rel=0.03)
    assert np.mean(noise) == pytest.approx(0.0, abs=0.03)
    assert np.all(noise != 0)


def _epsilon(mechanism, figure):
    """At the paper's settings: q = 256 / 60000, 60 epochs, 26,010 parameters."""
    claim = mechanism.claim(26_010)
    ledger = dp.accounting.Ledger()
    ledger.open(0, claim, dp.accounting.Poisson(256 / 60_000))
    return ledger.epsilon(14_063, 1e-5, figure=figure)


def test_published_settings_have_no_meaningful_epsilon_and_proven_ones_dp_sgds():
    published = dp.mechanisms.Tanh(noise_multiplier=1.1, guarantee="published")
    proven = dp.mechanisms.Tanh(noise_multiplier=1.1)
    dpsgd = dp.mechanisms.DPSGD(noise_multiplier=1.1)
    assert _epsilon(published, "proven") > 1e7
    # The paper counts as for DP-SGD, by the classic conversion.
    assert _epsilon(published, "published") == _epsilon(dpsgd, "published")
    assert _epsilon(published, "published") == pytest.approx(3.008, abs=1e-3)
    assert _epsilon(proven, "proven") == _epsilon(dpsgd, "proven")


def test_training_as_printed_warns_once_and_shows_both_figures():
    x, y = _data()
    model = _model()
    model.compile(
        dp.optimizers.TanhSGD(learning_rate=0.1, guarantee="published"), "mse"
    )
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-3)
    with pytest.warns(UserWarning, match="no meaningful guarantee") as caught:
        history = model.fit(
            dp.data.poisson_batches(x, y, batch_size=4),
            epochs=2,
            verbose=0,
            callbacks=[accountant],
        ).history
    assert sum("no meaningful" in str(w.message) for w in caught) == 1
    assert history["published_epsilon"][-1] < history["epsilon"][-1]


def test_logged_norms_are_those_of_the_filtered_rows():
    x, y = _data()
    model = _model()
    optimizer = dp.optimizers.TanhSGD(learning_rate=0.0, log_norms=True)
    model.compile(optimizer, "mse")
    kernel, bias = model.get_weights()
    model.fit(x, y, batch_size=4, epochs=1, verbose=0)
    residual = 2 / 3 * (x @ kernel + bias - y)
    gradient = np.concatenate(
        [np.einsum("bi,bo->bio", x, residual).reshape(12, -1), residual], axis=1
    )
    norms = np.linalg.norm(np.tanh(gradient), axis=1)
    statistics = optimizer.mechanism.norm_statistics()
    assert statistics["mean"] == pytest.approx(norms.mean(), rel=1e-3)
    assert statistics["fraction_above_one"] == pytest.approx(np.mean(norms > 1))


@pytest.mark.parametrize("how", ["model", "weights", "checkpoint"])
def test_logged_norms_are_in_no_saved_file(how, tmp_path):
    x, y = _data()

    def trained(log_norms=True):
        model = _model()
        model.compile(dp.optimizers.TanhSGD(log_norms=log_norms), "mse")
        model.fit(x, y, batch_size=4, verbose=0)
        return model

    model = trained()
    assert model.optimizer.mechanism._norm_totals.numpy()[0] == 12  # It did log.
    if how == "checkpoint":
        saved = tf.train.Checkpoint(optimizer=model.optimizer).save(tmp_path / "c")
        names = str(tf.train.list_variables(saved))
        assert "velocity" in names or "_variables" in names
        assert "norm" not in names
        assert len(tf.train.list_variables(saved)) == len(
            tf.train.list_variables(
                tf.train.Checkpoint(optimizer=trained(False).optimizer).save(
                    tmp_path / "d"
                )
            )
        )
        return
    path = tmp_path / ("m.keras" if how == "model" else "m.weights.h5")
    model.save(path) if how == "model" else model.save_weights(path)
    loaded = keras.saving.load_model(path) if how == "model" else trained()
    if how == "weights":
        loaded.optimizer.mechanism.norm_statistics()  # Reads and resets.
        loaded.load_weights(path)
    np.testing.assert_array_equal(loaded.optimizer.mechanism._norm_totals.numpy(), 0.0)
    assert not [v for v in model.optimizer.variables if "norm" in v.name]


def test_accountant_refuses_the_filter_without_privacy():
    x, y = _data()
    model = _model()
    model.compile(dp.optimizers.TanhFilteredSGD(0.1), "mse")
    with pytest.raises(ValueError, match="no privacy"):
        model.fit(
            x, y, verbose=0, callbacks=[dp.callbacks.PrivacyAccountant(delta=1e-3)]
        )


def test_audit_confirms_the_proven_filter_and_refutes_the_published_one():
    audit = dp.audit.audit_mechanism
    proven = audit(dp.mechanisms.Tanh(), shapes=[(32,)], runs=20_000)
    assert proven.epsilon <= proven.proven_epsilon
    published = audit(
        dp.mechanisms.Tanh(guarantee="published"), shapes=[(32,)], runs=20_000
    )
    assert published.published_epsilon < published.epsilon <= published.proven_epsilon
