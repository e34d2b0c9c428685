"""One training, two paths: XLA changes nothing but the last bits."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp

L = keras.layers
ROWS = 8

SETTINGS = {
    "DPSGD": (dp.optimizers.DPSGD, {}),
    "DPAdam, secure noise": (dp.optimizers.DPAdam, {"secure_noise": True}),
    "DPSGD, microbatches": (dp.optimizers.DPSGD, {"num_microbatches": 4}),
    "DPSGD, accumulation": (
        dp.optimizers.DPSGD,
        {"gradient_accumulation_steps": 2, "expected_batch_size": 2 * ROWS},
    ),
    "tanh": (dp.optimizers.TanhSGD, {}),
    "tanh, secure noise": (dp.optimizers.TanhSGD, {"secure_noise": True}),
    "directional": (dp.optimizers.DirectionalSGD, {}),
    "directional, pruning": (dp.optimizers.DirectionalSGD, {"pruning_ratio": 0.5}),
    "encoding": (dp.optimizers.EncodedSGD, {"denoise": None}),
    "encoding, KS denoising": (dp.optimizers.EncodedSGD, {"denoise": "ks"}),
    "encoding, secure noise": (
        dp.optimizers.EncodedSGD,
        {"denoise": "ks", "secure_noise": True},
    ),
}
# One of each mechanism, and each addition once.
IN_SHORT = [
    "DPSGD, accumulation",
    "tanh, secure noise",
    "directional, pruning",
    "encoding, KS denoising",
]


def trained(setting, jit_compile):
    """The weights after four batches."""
    keras.utils.set_random_seed(0)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(4 * ROWS, 6)).astype("float32")
    y = generator.integers(0, 3, len(x))
    model = keras.Sequential(
        [
            keras.Input([6]),
            L.Dense(5, activation="tanh"),
            L.Dense(3, activation="softmax"),
        ]
    )
    make, arguments = SETTINGS[setting]
    arguments = {"expected_batch_size": ROWS, **arguments}
    optimizer = make(learning_rate=0.1, noise_seed=7, **arguments)
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=jit_compile)
    model.fit(x, y, batch_size=ROWS, shuffle=False, verbose=0)
    return np.concatenate([weights.ravel() for weights in model.get_weights()])


def check(setting):
    graph, xla = (trained(setting, jit_compile) for jit_compile in (False, True))
    assert np.isfinite(graph).all()
    np.testing.assert_allclose(xla, graph, atol=1e-4 * np.abs(graph).max())


@pytest.mark.filterwarnings("ignore:.*noise_seed")
@pytest.mark.parametrize("setting", IN_SHORT)
def test_the_weights_are_the_same(setting):
    check(setting)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*noise_seed")
@pytest.mark.parametrize("setting", sorted(SETTINGS.keys() - set(IN_SHORT)))
def test_the_weights_are_the_same_in_every_setting(setting):
    check(setting)
