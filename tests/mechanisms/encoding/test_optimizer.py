"""EncodedSGD and EncodedAdam through plain Keras."""

import keras
import numpy as np
import pytest
from scipy import stats

import keras_dp_ext as dp
from keras_dp_ext.bounding import Codebook
from tests.nasr_algorithms import algorithm_2

FEATURES, CLASSES, BATCH = 6, 3, 16
PARAMETERS = FEATURES * CLASSES + CLASSES


def softmax_regression():
    model = keras.Sequential([keras.Input([FEATURES]), keras.layers.Dense(CLASSES)])
    rng = np.random.default_rng(0)
    model.set_weights([rng.standard_normal(w.shape) for w in model.get_weights()])
    return model


def batch(seed=1):
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal([BATCH, FEATURES]).astype(np.float32),
        rng.integers(0, CLASSES, BATCH),
    )


def fit_one_step(model, optimizer, data, **compile_arguments):
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        **compile_arguments,
    )
    model.fit(*data, batch_size=BATCH, epochs=1, verbose=0, shuffle=False)


def per_example_gradients(model, data):
    """By hand: softmax minus one-hot, times the features."""
    x, y = data
    kernel, bias = model.get_weights()
    logits = x @ kernel + bias
    logits -= logits.max(axis=1, keepdims=True)
    error = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    error -= np.eye(CLASSES)[y]
    kernels = np.einsum("bi,bo->bio", x, error).reshape(BATCH, -1)
    return np.concatenate([kernels, error], axis=1)


def flat_weights(model):
    return np.concatenate([w.ravel() for w in model.get_weights()])


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_one_fit_step_is_algorithm_1(jit_compile):
    codebook, scale, rate = Codebook(size=30), 0.3, 0.7
    (block,) = codebook.blocks(PARAMETERS)
    vectors = np.repeat(block.table, block.widths, axis=1)
    model, data = softmax_regression(), batch()
    gradients, before = per_example_gradients(model, data), flat_weights(model)
    optimizer = dp.optimizers.EncodedSGD(
        learning_rate=rate,
        codebook=codebook,
        noise=dp.noise.StudentT(9, scale),
        ranking="exact",
        noise_seed=4,
    )
    fit_one_step(model, optimizer, data, jit_compile=jit_compile)
    update = (before - flat_weights(model)) * BATCH / rate
    factor = optimizer.mechanism.denoising_factor
    # What was drawn is what is left; it must make the whole consistent.
    encoded = sum(algorithm_2(row, vectors) for row in gradients)
    privatised = update / factor
    drawn = privatised - encoded
    assert factor == pytest.approx(
        stats.kstest(privatised, stats.t(9, scale=scale).cdf).statistic,
        abs=1.1 / PARAMETERS,
    )
    assert stats.kstest(drawn, stats.t(9, scale=scale).cdf).pvalue > 1e-3
    again = softmax_regression()
    fit_one_step(
        again,
        dp.optimizers.EncodedSGD(
            learning_rate=rate,
            codebook=Codebook(size=30, norm=1e-6),
            noise=dp.noise.StudentT(9, scale),
            ranking="exact",
            denoise=None,
            noise_seed=4,
        ),
        data,
        jit_compile=jit_compile,
    )
    noise_alone = (before - flat_weights(again)) * BATCH / rate
    np.testing.assert_allclose(drawn, noise_alone, atol=2e-4)


def test_without_noise_worth_mentioning_the_update_is_the_encoded_average():
    codebook = Codebook(size=30)
    (block,) = codebook.blocks(PARAMETERS)
    vectors = np.repeat(block.table, block.widths, axis=1)
    model, data = softmax_regression(), batch()
    gradients, before = per_example_gradients(model, data), flat_weights(model)
    fit_one_step(
        model,
        dp.optimizers.EncodedSGD(
            learning_rate=1.0,
            codebook=codebook,
            noise=dp.noise.Gaussian(1e-7),
            denoise=None,
            ranking="exact",
        ),
        data,
    )
    expected = np.mean([algorithm_2(row, vectors) for row in gradients], axis=0)
    np.testing.assert_allclose(before - flat_weights(model), expected, atol=2e-6)


def test_padding_examples_contribute_nothing():
    """Rows of weight zero: the update with them is the update without them."""
    x, y = batch()
    weights = np.ones(BATCH, np.float32)
    weights[5:] = 0.0
    garbage = x.copy()
    garbage[5:] *= 1e3
    updates = []
    for features in (x, garbage):
        model = softmax_regression()
        before = flat_weights(model)
        model.compile(
            dp.optimizers.EncodedSGD(
                learning_rate=1.0, noise=dp.noise.Gaussian(1e-7), denoise=None
            ),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        model.fit(
            features,
            y,
            sample_weight=weights,
            batch_size=BATCH,
            verbose=0,
            shuffle=False,
        )
        updates.append(before - flat_weights(model))
    np.testing.assert_allclose(updates[0], updates[1], atol=1e-6)
    assert np.linalg.norm(updates[0]) > 0.01


def test_one_example_moves_the_sum_by_no_more_than_a_codebook_vector():
    """The attack: one huge gradient among ordinary ones."""
    codebook = Codebook(size=30)
    (block,) = codebook.blocks(PARAMETERS)
    vectors = np.repeat(block.table, block.widths, axis=1)
    x, y = batch()
    hostile = x.copy()
    hostile[3] *= 1e6
    kernel, _ = softmax_regression().get_weights()
    y[3] = np.argmin(hostile[3] @ kernel)  # Surely misclassified: error 1.
    missing = np.ones(BATCH, np.float32)
    missing[3] = 0.0
    after = []
    for features, weights in ((hostile, np.ones(BATCH)), (x, missing)):
        model = softmax_regression()
        model.compile(
            dp.optimizers.EncodedSGD(
                learning_rate=1.0,
                codebook=codebook,
                noise=dp.noise.Gaussian(1e-9),
                denoise=None,
            ),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        model.fit(
            features,
            y,
            sample_weight=weights,
            batch_size=BATCH,
            verbose=0,
            shuffle=False,
        )
        after.append(flat_weights(model))
    shift = -np.sort(-np.abs(after[0] - after[1]) * BATCH)
    assert np.any(np.all(shift <= vectors + 1e-4, axis=1))
    assert shift[0] > 1e-2


def test_the_schedule_follows_the_counter_of_releases():
    model, (x, y) = softmax_regression(), batch()
    model.compile(
        dp.optimizers.EncodedSGD(
            learning_rate=1.0,
            noise=dp.noise.Gaussian(1.0),
            noise_schedule={0: 1e-6, 2: 1e3},
            denoise=None,
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    moved = []
    for _ in range(3):
        before = flat_weights(model)
        model.fit(x, y, batch_size=BATCH, verbose=0)
        moved.append(np.linalg.norm(flat_weights(model) - before))
    assert max(moved[:2]) < 2
    assert moved[2] > 20


@pytest.mark.parametrize("name", ["EncodedSGD", "EncodedAdam"])
def test_saved_models_keep_mechanism_and_factor(name, tmp_path):
    model, data = softmax_regression(), batch()
    optimizer = getattr(dp.optimizers, name)(
        learning_rate=0.1,
        codebook=Codebook(["gaussian", "laplace"], size=7),
        noise="laplace",
        denoise="energy",
        noise_schedule={0: 1.0, 9: 0.5},
    )
    fit_one_step(model, optimizer, data)
    path = tmp_path / "model.keras"
    model.save(path)
    restored = keras.models.load_model(path).optimizer
    assert restored.mechanism.get_config() == optimizer.mechanism.get_config()
    assert restored.mechanism.denoising_factor == optimizer.mechanism.denoising_factor
    assert int(restored.releases) == 1
    assert restored.privacy_claim() == optimizer.privacy_claim()


def test_any_base_optimizer_can_be_encoded():
    encoded = dp.optimizers.make_private(
        keras.optimizers.Lion, dp.mechanisms.Encoded, learning_rate=0.01
    )
    model = softmax_regression()
    before = flat_weights(model)
    fit_one_step(model, encoded, batch())
    assert not np.allclose(before, flat_weights(model))


def test_the_ledger_of_a_run_agrees_with_the_claim():
    model, data = softmax_regression(), batch()
    optimizer = dp.optimizers.EncodedSGD(learning_rate=0.1, noise_schedule={0: 2, 1: 1})
    model.compile(
        optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    optimizer.build(model.trainable_variables)
    sampling = dp.accounting.Poisson(0.1)
    optimizer.declare_sampling(sampling)
    model.fit(*data, batch_size=BATCH, epochs=4, verbose=0)
    total = int(optimizer.releases)
    assert total == 4
    claims = [
        dp.mechanisms.Encoded(noise=dp.noise.StudentT(9, scale)).claim(PARAMETERS)
        for scale in (2.0, 1.0)
    ]
    expected = dp.accounting.epsilon(
        [(claims[0].proven, sampling, 1), (claims[1].proven, sampling, 3)], 1e-5
    )
    assert optimizer.ledger.epsilon(total, 1e-5) == pytest.approx(expected, rel=1e-9)


def test_microbatches_are_averaged_and_then_encoded():
    codebook = Codebook(size=30)
    (block,) = codebook.blocks(PARAMETERS)
    vectors = np.repeat(block.table, block.widths, axis=1)
    model, data = softmax_regression(), batch()
    gradients, before = per_example_gradients(model, data), flat_weights(model)
    optimizer = dp.optimizers.EncodedSGD(
        learning_rate=1.0,
        codebook=codebook,
        noise=dp.noise.Gaussian(1e-7),
        denoise=None,
        ranking="exact",
        num_microbatches=4,
    )
    fit_one_step(model, optimizer, data)
    averages = gradients.reshape(4, 4, -1).mean(axis=1)
    expected = np.mean([algorithm_2(row, vectors) for row in averages], axis=0)
    np.testing.assert_allclose(before - flat_weights(model), expected, atol=2e-6)
    assert optimizer.privacy_claim().proven.replaced
