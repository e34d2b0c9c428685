"""A mechanism put together of stages is the one that was written as a class."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from keras_dp_ext.accounting import sensitivity

CODEBOOK = dp.bounding.Codebook(size=10)
STUDENT = dp.noise.StudentT(df=9, scale=0.5)

PAIRS = {
    "dpsgd": (
        dp.optimizers.DPSGD(l2_norm_clip=0.5, noise_multiplier=2.0, noise_seed=3),
        {"bound": dp.bounding.L2Clip(0.5), "noise": dp.noise.Gaussian(1.0)},
    ),
    "encoding": (
        dp.optimizers.EncodedSGD(codebook=CODEBOOK, noise=STUDENT, noise_seed=3),
        {
            "bound": dp.bounding.Encoding(CODEBOOK),
            "noise": STUDENT,
            "refine": dp.refining.KSDenoising(),
        },
    ),
    "tanh": (
        dp.optimizers.TanhSGD(l2_norm_clip=0.5, noise_multiplier=2.0, noise_seed=3),
        {
            "bound": dp.bounding.TanhFilter(l2_norm_clip=0.5),
            "noise": dp.noise.Gaussian(1.0),
        },
    ),
}


def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=[20, 4]).astype(np.float32)
    return x, x[:, :1] * 2


def trained(optimizer, **arguments):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **arguments)
    lots = dp.data.poisson_batches(*data(), batch_size=5, seed=0)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-2)
    model.fit(lots, verbose=0, callbacks=[accountant])
    return model, accountant


@pytest.mark.filterwarnings("ignore:The noise is reproducible")
@pytest.mark.parametrize("name", PAIRS)
def test_stages_train_and_cost_as_the_class_does(name, tmp_path):
    written, stages = PAIRS[name]
    put_together = dp.optimizers.make_private(
        keras.optimizers.SGD, noise_seed=3, **stages
    )
    expected, costs = trained(written)
    model, accountant = trained(put_together)
    for a, b in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert accountant.epsilon == costs.epsilon
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert loaded.get_config() == put_together.get_config()
    assert loaded.ledger.epsilon(delta=1e-2) == accountant.epsilon


BOUNDS = [
    dp.bounding.L2Clip(0.3),
    dp.bounding.Normalized(0.3),
    dp.bounding.L1Clip(0.3),
    dp.bounding.TanhFilter(output_range=0.2, l2_norm_clip=0.3),
    dp.bounding.Encoding(dp.bounding.Codebook(size=10, norm=0.3)),
]


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: type(bound).__name__)
def test_no_row_adds_more_than_the_sensitivity(bound):
    """Rows from 1e-30 to 1e30, sparse and dense, not finite, and padding."""
    import tensorflow as tf

    from keras_dp_ext.gradients import MaterializedGradients

    rng = np.random.default_rng(0)
    for exponent in (-30, -3, 0, 3, 18, 30):
        row = (rng.normal(size=[1, 50]) * 10.0**exponent).astype(np.float32)
        row[0, : rng.integers(0, 49)] = 0.0
        for value in (row, 1e30 * np.sign(row), 0 * row, np.nan * row):
            (total,) = bound.sum(
                MaterializedGradients([tf.constant(value.astype(np.float32))])
            )
            norm = np.linalg.norm(total.numpy().astype(np.float64))
            assert norm <= 0.3 * (1 + 1e-5)
            if not np.any(value) or np.isnan(value).any():
                assert norm == 0
    assert dp.bounding.get(bound.serialize()) == bound


def test_l1_bound_holds_in_l1():
    import tensorflow as tf

    from keras_dp_ext.gradients import MaterializedGradients

    row = np.random.default_rng(0).normal(size=[1, 50]).astype(np.float32)
    (total,) = dp.bounding.L1Clip(0.3).sum(MaterializedGradients([tf.constant(row)]))
    np.testing.assert_allclose(np.abs(total).sum(), 0.3, rtol=1e-5)


def test_a_pair_that_nobody_has_analysed_is_an_error():
    for noise in (dp.noise.StudentT(), dp.noise.Laplace(), dp.noise.Cauchy()):
        with pytest.raises(ValueError, match="No bound on epsilon is known"):
            dp.optimizers.make_private(
                keras.optimizers.SGD, bound=dp.bounding.L2Clip(), noise=noise
            )
    with pytest.raises(ValueError, match="No bound on epsilon is known"):
        dp.mechanisms.Composed(dp.bounding.L1Clip(), dp.noise.StudentT())
    with pytest.raises(ValueError, match="Argument `bound` must be"):
        dp.mechanisms.Composed(bound=1.0)


@pytest.mark.parametrize("scale", [0.8, 3.0])
def test_laplace_noise_on_an_l1_bound_is_worst_along_an_axis(scale):
    """Against the product over coordinates, for shifts that are spread out."""
    from keras_dp_ext.accounting import NoiseRelease, rdp
    from keras_dp_ext.accounting.sampling import Poisson

    noise = dp.noise.Laplace(scale)
    claimed = sensitivity.release_of(sensitivity.L1Sensitivity(1.0), noise)
    orders = np.array([2, 4, 8, 32])
    bound = rdp.rdp_per_release(claimed, Poisson(0.1), orders)
    for shift in ([0.5, 0.5], [0.9, 0.1], [0.25] * 4, [0.01] * 100):
        spread = rdp.rdp_per_release(NoiseRelease(noise, [shift]), Poisson(0.1), orders)
        assert np.all(spread <= bound * 1.01)


def test_an_audit_of_automatic_clipping_holds():
    mechanism = dp.mechanisms.Composed(dp.bounding.Normalized(), dp.noise.Gaussian(1.0))
    assert dp.audit.audit_mechanism(mechanism, runs=5_000).verdict == "holds"


def test_several_examples_in_a_microbatch_double_the_sensitivity():
    mechanism = dp.mechanisms.Composed(dp.bounding.L2Clip(2.0), dp.noise.Gaussian(4.0))
    assert mechanism.claim(10, 1).proven.noise_multiplier == 2.0
    assert mechanism.claim(10, 3).proven.noise_multiplier == 1.0
