"""The update equals that of TensorFlow Privacy's own optimizer."""

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_dp_ext import tf_privacy

needs_tf_privacy = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_privacy") is None
    or importlib.util.find_spec("tf_keras") is None,
    reason="tensorflow-privacy 0.9.0 needs Python < 3.12",
)

# Runs where TensorFlow Privacy works: with legacy Keras, in a process of its own.
THEIRS = """
import sys
sys.skip_tf_privacy_import = True
import numpy as np, tensorflow as tf, tf_keras
from tensorflow_privacy.privacy.optimizers import dp_optimizer_keras
data = np.load(sys.argv[1])
microbatches = int(sys.argv[3])
L = tf_keras.layers
model = tf_keras.Sequential([
    L.Conv2D(16, 8, strides=2, padding="same", activation="relu",
             input_shape=(28, 28, 1)),
    L.MaxPool2D(2, 1),
    L.Conv2D(32, 4, strides=2, padding="valid", activation="relu"),
    L.MaxPool2D(2, 1),
    L.Flatten(),
    L.Dense(32, activation="relu"),
    L.Dense(10),
])
model.set_weights([data[f"w{i}"] for i in range(8)])
optimizer = dp_optimizer_keras.DPKerasSGDOptimizer(
    l2_norm_clip=0.7, noise_multiplier=0.0, num_microbatches=microbatches,
    learning_rate=1.0)
loss = tf_keras.losses.SparseCategoricalCrossentropy(
    from_logits=True, reduction=tf_keras.losses.Reduction.NONE)
model.compile(optimizer, loss=loss)
model.fit(data["x"], data["y"], batch_size=len(data["x"]), shuffle=False, verbose=0)
np.savez(sys.argv[2], **{f"w{i}": w for i, w in enumerate(model.get_weights())})
"""


def tutorial_model():
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input([28, 28, 1]),
            layers.Conv2D(16, 8, strides=2, padding="same", activation="relu"),
            layers.MaxPool2D(2, 1),
            layers.Conv2D(32, 4, strides=2, padding="valid", activation="relu"),
            layers.MaxPool2D(2, 1),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            layers.Dense(10),
        ]
    )


@needs_tf_privacy
@pytest.mark.parametrize("examples_per_microbatch", [1, 4])
def test_update_equals_tf_privacys_on_its_tutorial_model(
    tmp_path, rng, examples_per_microbatch
):
    x = rng.uniform(size=(16, 28, 28, 1)).astype("float32")
    y = rng.integers(0, 10, 16)
    model = tutorial_model()
    before = model.get_weights()
    np.savez(
        tmp_path / "in.npz", x=x, y=y, **{f"w{i}": w for i, w in enumerate(before)}
    )
    microbatches = 16 // examples_per_microbatch
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1"}
    subprocess.run(
        [
            sys.executable,
            "-c",
            THEIRS,
            str(tmp_path / "in.npz"),
            str(tmp_path / "out.npz"),
            str(microbatches),
        ],
        check=True,
        env=environment,
        capture_output=True,
    )
    theirs = np.load(tmp_path / "out.npz")
    optimizer = tf_privacy.DPKerasSGDOptimizer(
        l2_norm_clip=0.7,
        noise_multiplier=0.0,
        num_microbatches=microbatches,
        learning_rate=1.0,
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
    model.compile(optimizer, loss=loss)
    model.fit(x, y, batch_size=16, shuffle=False, verbose=0)
    for number, (old, new) in enumerate(zip(before, model.get_weights(), strict=True)):
        expected = theirs[f"w{number}"] - old
        np.testing.assert_allclose(
            new - old, expected, rtol=1e-5, atol=1e-5 * np.max(np.abs(expected))
        )


@pytest.mark.parametrize(
    "name",
    ["DPKerasSGDOptimizer", "DPKerasAdamOptimizer", "DPKerasAdagradOptimizer"],
)
def test_names_and_signature_are_those_of_tf_privacy(name):
    optimizer = getattr(tf_privacy, name)(1.5, 0.8, 4, 2, 0.05)
    config = optimizer.get_config()
    assert config["l2_norm_clip"] == 1.5
    assert config["noise_multiplier"] == 0.8
    assert config["num_microbatches"] == 4
    assert config["gradient_accumulation_steps"] == 2
    assert config["learning_rate"] == pytest.approx(0.05)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is type(optimizer)
    assert again.get_config() == config


def test_surplus_and_repeated_positional_arguments_are_errors():
    make = tf_privacy.DPKerasSGDOptimizer
    with pytest.raises(TypeError, match="positional arguments"):
        make(1.0, 1.0, None, 1, *range(50))
    with pytest.raises(TypeError, match="two values for `learning_rate`"):
        make(1.0, 1.0, None, 1, 0.1, learning_rate=0.2)
