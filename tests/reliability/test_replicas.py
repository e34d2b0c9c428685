"""Several replicas release what one device releases: one draw, one count."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from reliability_models import data, dense_model
from run_workers import run_workers

import keras_dp_ext as dp

CASES = {
    "DPSGD": {},
    "DPSGD in lots": {"gradient_accumulation_steps": 2},
    "DPSGD, secure noise": {"secure_noise": True},
    "DPAdamW": {"weight_decay": 0.01},
    "TanhSGD": {},
    # Student-t noise is not divisible: no sum of two draws would do.
    "EncodedSGD": {"codebook": dp.bounding.Codebook(size=8)},
    "DirectionalSGD": {},
    "QuantileSGD": {},
    "BandMFSGD": {"bands": 3, "steps": 4},
    "BandMFSGD, secure noise": {"bands": 3, "steps": 4, "secure_noise": True},
    "DPFTRLSGD": {},
    "DPFTRLSGD, secure noise": {"secure_noise": True},
    "BLTSGD": {"buffers": 2, "steps": 4},
    "BandInvSGD in lots": {"bands": 3, "gradient_accumulation_steps": 2},
}


def batches(examples=64):
    dataset = tf.data.Dataset.from_tensor_slices(data(examples))
    return dataset.batch(16, drop_remainder=True)


def train(case, strategy, **arguments):
    optimizer_class = getattr(dp.optimizers, case.split(" ")[0].strip(","))
    with strategy.scope():
        model = dense_model()
        model.compile(
            optimizer_class(learning_rate=0.1, **CASES[case], **arguments),
            loss="mse",
            jit_compile=False,
        )
    model.fit(batches(), epochs=1, verbose=0)
    return model


@pytest.mark.parametrize("case", CASES)
def test_two_replicas_release_what_one_device_releases(case, mirrored):
    alone = train(case, tf.distribute.get_strategy(), noise_seed=5)
    together = train(case, mirrored, noise_seed=5)
    for one, both in zip(alone.get_weights(), together.get_weights(), strict=True):
        np.testing.assert_allclose(one, both, atol=1e-6)
    for variable in together.trainable_variables:
        first, second = (copy.numpy() for copy in variable.value.values)
        np.testing.assert_array_equal(first, second)
    steps = 4 // CASES[case].get("gradient_accumulation_steps", 1)
    assert int(together.optimizer.releases.numpy()) == steps
    assert int(together.optimizer.iterations.numpy()) == steps


def test_noise_of_two_replicas_has_the_variance_of_one_draw(mirrored):
    x, y = np.zeros((8, 1000), "float32"), np.zeros((8, 1), "float32")
    with mirrored.scope():
        model = keras.Sequential([keras.Input([1000]), keras.layers.Dense(1)])
        model.compile(
            dp.optimizers.DPSGD(
                learning_rate=1.0, noise_multiplier=3.0, expected_batch_size=1
            ),
            loss="mse",
            jit_compile=False,
        )
    before = model.get_weights()[0]
    model.fit(x, y, batch_size=8, verbose=0)
    # Two draws would give 3 * sqrt(2) = 4.2; 0.27 is four standard errors.
    assert np.std(model.get_weights()[0] - before) == pytest.approx(3.0, abs=0.27)


def test_microbatches_are_counted_over_all_replicas(mirrored):
    with mirrored.scope():
        model = dense_model()
        model.compile(
            dp.optimizers.DPSGD(num_microbatches=8, noise_multiplier=1.0),
            loss="mse",
            jit_compile=False,
        )
    model.fit(batches(16), verbose=0)
    # Two examples to a microbatch: twice the sensitivity, half the multiplier.
    assert model.optimizer.privacy_claim().proven == dp.accounting.GaussianRelease(0.5)


def test_two_workers_release_what_one_device_releases(tmp_path):
    results = [tmp_path / f"{index}.npz" for index in range(2)]
    run_workers("worker.py", results, timeout=400)
    first, second = map(np.load, results)
    for name in ("DPSGD", "EncodedSGD"):
        np.testing.assert_array_equal(first[name], second[name])
        assert first[f"{name} releases"] == second[f"{name} releases"] == 4
        alone = train(name, tf.distribute.get_strategy(), noise_seed=5)
        expected = np.concatenate([np.ravel(w) for w in alone.get_weights()])
        np.testing.assert_allclose(first[name], expected, atol=1e-6)


def lots_of_people(slots, rows=3):
    """Everybody with all rows in each lot, whichever epoch Keras is at."""
    x, y = data(48)
    ids = np.arange(48) // 3
    return dp.data.poisson_batches(
        x,
        y,
        batch_size=16,
        steps_per_epoch=2,
        user_ids=ids,
        examples_per_user=rows,
        physical_batch_size=rows * slots,
    )


def test_replicas_share_a_lot_between_people(mirrored):
    weights = []
    for strategy in (tf.distribute.get_strategy(), mirrored):
        with strategy.scope():
            model = dense_model()
            optimizer = dp.optimizers.DPSGD(learning_rate=0.1, noise_seed=5)
            model.compile(optimizer, "mse", jit_compile=False)
        model.fit(lots_of_people(18), verbose=0)
        weights.append(model.get_weights())
        ((_, sampling, count),) = model.optimizer.ledger.entries()
        assert (sampling.unit, count) == ("person", 2)
    for one, both in zip(*weights, strict=True):
        np.testing.assert_allclose(one, both, atol=1e-6)


def test_replicas_that_would_share_a_person_are_refused(mirrored):
    with mirrored.scope():
        model = dense_model()
        model.compile(dp.optimizers.DPSGD(), "mse", jit_compile=False)
    with pytest.raises(ValueError, match="rows of a person must stay together"):
        model.fit(lots_of_people(19, rows=2), verbose=0)
    assert int(model.optimizer.releases.numpy()) == 0
