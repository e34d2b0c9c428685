"""Half precision: bound, sum and noise stay in float32; no step is skipped."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from reliability_models import data, silent

import keras_dp_ext as dp


def mixed_model(policy):
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input([4]),
            keras.layers.Dense(5, activation="tanh", dtype=policy),
            keras.layers.Dense(1, dtype=policy),
            keras.layers.Activation("linear", dtype="float32"),
        ]
    )


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("mechanism", ["DPSGD", "TanhSGD"])
def test_the_update_is_that_of_float32_up_to_the_rounding_of_the_model(
    policy, mechanism
):
    x, y = data(16)
    # Rows of up to 6000, of one sign: their sum would overflow float16 at 65504.
    y = np.full_like(y, 3.0)
    moved = []
    for name in ("float32", policy):
        model = mixed_model(name)
        model.compile(
            silent(mechanism, l2_norm_clip=1e5),
            loss="mse",
            loss_weights=1e3,
            auto_scale_loss=False,
        )
        before = model.get_weights()
        model.train_on_batch(x, y)
        assert all(w.dtype == np.float32 for w in model.get_weights())
        moved.append(
            np.concatenate(
                [
                    np.ravel(b - a)
                    for a, b in zip(before, model.get_weights(), strict=True)
                ]
            )
        )
    exact, half = moved
    assert np.linalg.norm(half - exact) < 0.05 * np.linalg.norm(exact)


def test_noise_is_finer_than_half_precision():
    model = mixed_model("mixed_bfloat16")
    model.compile(
        dp.optimizers.DPSGD(learning_rate=1.0, expected_batch_size=1), loss="mse"
    )
    before = model.get_weights()[0]
    model.train_on_batch(*data(8))
    moved = model.get_weights()[0] - before
    rounded = tf.cast(tf.cast(moved, tf.bfloat16), tf.float32).numpy()
    assert np.mean(rounded == moved) < 0.1


def test_loss_scaling_is_refused_when_the_model_is_compiled():
    # LossScaleOptimizer skips a step where a gradient of the batch is not finite:
    # whether the weights move would tell about one example.
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = mixed_model("mixed_float16")
        with pytest.raises(ValueError, match="auto_scale_loss=False"):
            model.compile(dp.optimizers.DPSGD(), loss="mse")
    finally:
        keras.config.set_dtype_policy("float32")
    with pytest.raises(ValueError, match="cannot be wrapped in LossScaleOptimizer"):
        keras.optimizers.LossScaleOptimizer(dp.optimizers.DPAdam())


def test_a_float16_example_that_overflows_contributes_nothing():
    x, y = data(8)
    model = mixed_model("mixed_float16")
    model.compile(silent(), loss="mse", auto_scale_loss=False)
    x[0] = 1e5  # Beyond the largest float16.
    before = model.get_weights()
    model.train_on_batch(x, y)
    moved = [b - a for a, b in zip(before, model.get_weights(), strict=True)]
    assert np.sqrt(sum(np.sum(np.square(m)) for m in moved)) <= 8.0 + 1e-3
    assert all(np.isfinite(m).all() for m in moved)
