"""Exposure of secrets in the training data of a language model."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp

DIGITS, LENGTH = 10, 6


def test_exposure_is_that_of_a_brute_force_ranking():
    rng = np.random.default_rng(0)
    candidates, canaries = rng.normal(size=63), rng.normal(size=9)
    exposures = dp.audit.canary_exposure(canaries, candidates)
    for canary, exposure in zip(canaries, exposures, strict=True):
        rank = sorted([*candidates, canary]).index(canary) + 1
        assert exposure == pytest.approx(np.log2(64 / rank))


def test_what_was_never_seen_has_low_exposure():
    """`P(exposure >= t) = 2**-t`: exactly, for the ranks of equally likely secrets."""
    losses = np.random.default_rng(1).normal(size=(4000, 128))
    exposures = [dp.audit.canary_exposure(row[0], row[1:])[0] for row in losses]
    assert np.mean(exposures) == pytest.approx(np.log2(np.e), abs=0.1)
    for t in (1, 2, 4):
        assert np.mean(np.array(exposures) >= t) == pytest.approx(2.0**-t, abs=0.02)


def test_ties_are_no_memory():
    assert dp.audit.canary_exposure([1.0], [1.0] * 7) == [0.0]


def test_what_is_no_number_is_refused():
    with pytest.raises(ValueError, match="must not have NaN"):
        dp.audit.canary_exposure([np.nan], [1.0])
    with pytest.raises(ValueError, match="must not be empty"):
        dp.audit.canary_exposure([1.0], [])


def loss_of_text(y, logits):
    losses = keras.ops.sparse_categorical_crossentropy(y, logits, from_logits=True)
    return keras.ops.mean(losses, axis=-1)


def language_model(optimizer):
    keras.utils.set_random_seed(0)
    tokens = keras.Input([LENGTH - 1], dtype="int32")
    x = keras.layers.Embedding(DIGITS, 16)(tokens)
    x = keras.layers.GRU(48, return_sequences=True)(x)
    model = keras.Model(tokens, keras.layers.Dense(DIGITS)(x))
    model.compile(optimizer, loss_of_text)
    return model


def exposures_of(model, canaries, candidates):
    def bits(texts):
        return dp.audit.log_perplexities(model, texts[:, :-1], texts[:, 1:])

    return dp.audit.canary_exposure(bits(canaries), bits(candidates))


def test_log_perplexity_is_minus_the_log_probability_in_bits():
    model = language_model("sgd")
    texts = np.random.default_rng(0).integers(0, DIGITS, (5, LENGTH))
    logits = model.predict(texts[:, :-1], verbose=0).astype(float)
    odds = np.exp(logits)
    chosen = np.take_along_axis(odds, texts[:, 1:, None], axis=2)[..., 0]
    expected = -np.log2(chosen / odds.sum(axis=2)).sum(axis=1)
    found = dp.audit.log_perplexities(model, texts[:, :-1], texts[:, 1:])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    weights = np.zeros([5, LENGTH - 1])
    assert not dp.audit.log_perplexities(
        model, texts[:, :-1], texts[:, 1:], weights
    ).any()


def test_a_plain_model_learns_canaries_by_heart_and_a_private_one_does_not():
    rng = np.random.default_rng(2)
    texts = rng.integers(0, DIGITS, (64, LENGTH))
    canaries, candidates = texts[:16], rng.integers(0, DIGITS, (1023, LENGTH))
    plain = language_model(keras.optimizers.Adam(0.02))
    plain.fit(texts[:, :-1], texts[:, 1:], epochs=60, verbose=0)
    assert exposures_of(plain, canaries, candidates).mean() > 8.0
    private = language_model(dp.DPAdam(learning_rate=0.02, noise_multiplier=4.0))
    batches = dp.poisson_batches(texts[:, :-1], texts[:, 1:], batch_size=16, seed=0)
    private.fit(batches, epochs=30, verbose=0)
    # By chance 1.4, give or take 0.4.
    assert exposures_of(private, canaries, candidates).mean() < 4.0
