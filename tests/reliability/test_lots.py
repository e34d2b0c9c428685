"""A lot of several batches is one big batch: one draw of noise, one event."""

import keras
import numpy as np
import pytest
from reliability_models import data, dense_model, flat, silent

import keras_dp_ext as dp


@pytest.mark.parametrize("mechanism", ["DPSGD", "TanhSGD", "DirectionalSGD"])
def test_micro_steps_equal_one_big_batch(mechanism):
    x, y = data(24)
    weights = []
    for steps, batch_size in ((None, 24), (3, 8)):
        model = dense_model()
        model.compile(
            silent(
                mechanism,
                gradient_accumulation_steps=steps,
                expected_batch_size=None,
                learning_rate=0.5,
            ),
            loss="mse",
        )
        model.fit(x, y, batch_size=batch_size, epochs=2, shuffle=False, verbose=0)
        assert int(model.optimizer.releases.numpy()) == 2
        weights.append(flat(model))
    np.testing.assert_allclose(*weights, atol=1e-6)


@pytest.mark.parametrize("secure_noise", [False, True])
def test_a_lot_has_the_noise_of_one_draw(secure_noise):
    x, y = np.zeros((40, 1000), "float32"), np.zeros((40, 1), "float32")
    model = keras.Sequential(
        [keras.Input([1000]), keras.layers.Dense(1, kernel_initializer="zeros")]
    )
    model.compile(
        dp.optimizers.DPSGD(
            learning_rate=1.0,
            noise_multiplier=3.0,
            gradient_accumulation_steps=5,
            expected_batch_size=1,
            secure_noise=secure_noise,
        ),
        loss="mse",
        jit_compile=False,
    )
    model.fit(x, y, batch_size=10, verbose=0)
    np.testing.assert_array_equal(model.get_weights()[0], 0.0)
    model.fit(x[:10], y[:10], batch_size=2, verbose=0)
    assert int(model.optimizer.releases.numpy()) == 1
    # Five draws would give 6.7; 0.27 is four standard errors.
    assert np.std(model.get_weights()[0]) == pytest.approx(3.0, abs=0.27)


class Stop(keras.callbacks.Callback):
    """Ends training as a crash does, in the middle of a lot."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            raise KeyboardInterrupt


def interrupted(**arguments):
    """A model whose lot of four batches was left after two."""
    x, y = data(32)
    model = dense_model()
    model.compile(silent(gradient_accumulation_steps=4, **arguments), loss="mse")
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[Stop()])
    assert any(np.any(lot.numpy()) for lot in model.optimizer._lot)
    return model


def test_a_saved_model_holds_no_sums_that_are_not_noised(tmp_path):
    model = interrupted()
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    for loaded in (keras.saving.load_model(tmp_path / "model.keras"), dense_model()):
        if not loaded.compiled:
            loaded.compile(silent(gradient_accumulation_steps=4), loss="mse")
            loaded.optimizer.build(loaded.trainable_variables)
            loaded.load_weights(tmp_path / "model.weights.h5")
        assert int(loaded.optimizer._micro_step.numpy()) == 0
        for lot in loaded.optimizer._lot:
            np.testing.assert_array_equal(lot.numpy(), 0.0)


def test_a_backup_brings_the_unfinished_lot_back(tmp_path):
    x, y = data(32)
    model = dense_model()
    model.compile(silent(gradient_accumulation_steps=4), loss="mse")
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq=2)
    with pytest.raises(KeyboardInterrupt):
        model.fit(
            x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[backup, Stop()]
        )
    resumed = dense_model(seed=1)
    resumed.compile(silent(gradient_accumulation_steps=4), loss="mse")
    backup.set_model(resumed)
    backup.on_train_begin()
    assert int(resumed.optimizer._micro_step.numpy()) == 2
    for lot, restored in zip(model.optimizer._lot, resumed.optimizer._lot, strict=True):
        np.testing.assert_array_equal(lot.numpy(), restored.numpy())
