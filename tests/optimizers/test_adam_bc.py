"""Adam without the noise's bias: the paper's update, and no more privacy spent."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp


def test_the_update_is_that_of_the_paper():
    class Known(dp.optimizers.AdamBC):
        def _gradient_noise_variance(self):
            return 0.04

    rng = np.random.default_rng(0)
    weights, m, v = np.ones(6), np.zeros(6), np.zeros(6)
    variable = keras.Variable(weights.astype("float32"))
    optimizer = Known(learning_rate=0.1, beta_1=0.8, beta_2=0.9, epsilon=1e-3)
    for step in range(1, 6):
        gradient = rng.normal(size=6) * [0.0, 0.1, 0.2, 0.3, 1.0, 5.0]
        optimizer.apply([keras.ops.convert_to_tensor(gradient, "float32")], [variable])
        m = 0.8 * m + 0.2 * gradient
        v = 0.9 * v + 0.1 * gradient**2
        corrected = np.maximum(v / (1 - 0.9**step) - 0.04, 1e-3)
        weights = weights - 0.1 * m / (1 - 0.8**step) / np.sqrt(corrected)
        np.testing.assert_allclose(variable.numpy(), weights, rtol=1e-4)


def fit(optimizer, **arguments):
    x = np.random.default_rng(0).normal(size=[40, 3]).astype("float32")
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **arguments)
    model.fit(dp.data.poisson_batches(x, x[:, :1], batch_size=8), verbose=0)
    return model


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_variance_is_that_of_the_noise_in_the_average(jit_compile):
    arguments = {"l2_norm_clip": 0.5, "noise_multiplier": 3.0, "learning_rate": 0.01}
    model = fit(dp.optimizers.DPAdamBC(**arguments), jit_compile=jit_compile)
    assert model.optimizer._gradient_noise_variance() == (3.0 * 0.5 / 8) ** 2
    plain = fit(dp.optimizers.DPAdam(**arguments))
    assert model.optimizer.privacy_claim() == plain.optimizer.privacy_claim()


def test_noise_alone_leaves_a_second_moment_near_zero():
    """Where Adam's is the variance of the noise: 2,000 coordinates without a gradient."""
    x = np.zeros([40, 2000], "float32")
    model = keras.Sequential([keras.Input([2000]), keras.layers.Dense(1)])
    optimizer = dp.optimizers.DPAdamBC(learning_rate=0.0, noise_multiplier=2.0)
    model.compile(optimizer, "mse")
    lots = dp.data.poisson_batches(x, x[:, :1], batch_size=8, steps_per_epoch=30)
    model.fit(lots, verbose=0)
    moment = optimizer._velocities[0].numpy() / (1 - 0.999**30)
    variance = optimizer._gradient_noise_variance()
    assert np.mean(moment) == pytest.approx(variance, rel=0.05)


def test_it_saves_and_loads_and_takes_other_bounds(tmp_path):
    optimizer = dp.optimizers.make_private(
        dp.optimizers.AdamBC,
        bound=dp.bounding.Normalized(),
        noise=dp.noise.Gaussian(2.0),
    )
    for model in (fit(dp.optimizers.DPAdamBC(epsilon=1e-7)), fit(optimizer)):
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        assert loaded.optimizer.get_config() == model.optimizer.get_config()
        assert type(loaded.optimizer) is type(model.optimizer)


def test_noise_of_another_kind_is_refused_before_a_step():
    optimizer = dp.optimizers.make_private(
        dp.optimizers.AdamBC, dp.mechanisms.Encoded, "EncodedAdamBC"
    )()
    with pytest.raises(ValueError, match="noise of one known size"):
        fit(optimizer)
    with pytest.raises(ValueError, match="amsgrad"):
        dp.optimizers.DPAdamBC(amsgrad=True)
