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


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("secure_noise", [False, True])
def test_a_lot_has_the_noise_of_one_draw(secure_noise, jit_compile):
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
        jit_compile=jit_compile,
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
    assert any(np.any(lot.numpy()) for lot in model.optimizer._release.lot)
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
        assert int(loaded.optimizer._release.micro_step.numpy()) == 0
        for lot in loaded.optimizer._release.lot:
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
    assert int(resumed.optimizer._release.micro_step.numpy()) == 2
    for lot, restored in zip(
        model.optimizer._release.lot, resumed.optimizer._release.lot, strict=True
    ):
        np.testing.assert_array_equal(lot.numpy(), restored.numpy())


class Recorder(keras.callbacks.Callback):
    """The weights after every batch."""

    def on_train_begin(self, logs=None):
        self.weights = [flat(self.model)]

    def on_train_batch_end(self, batch, logs=None):
        self.weights.append(flat(self.model))

    def releases(self):
        moved = np.linalg.norm(np.diff(self.weights, axis=0), axis=1)
        return moved[moved > 0.1]


def one_example_in(lots_of: int):
    """Poisson lots of which a single example has a gradient, and its model."""
    x, y = np.zeros((64, 3), "float32"), np.zeros((64, 1), "float32")
    x[0], y[0] = 1.0, 1e3
    lots = dp.data.poisson_batches(
        x, y, batch_size=48, accumulation_steps=lots_of, steps_per_epoch=20
    )
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1, use_bias=False)])
    # Noise, but hardly any: the accountant wants some.
    model.compile(
        dp.optimizers.DPSGD(
            learning_rate=1.0,
            noise_multiplier=1e-4,
            gradient_accumulation_steps=lots_of,
            expected_batch_size=1,
        ),
        loss="mse",
    )
    return model, lots


def interrupt(model, lots, *callbacks):
    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:  # The first batch of the second lot.
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(lots, verbose=0, callbacks=[*callbacks, Interrupt()])
    assert int(model.optimizer._release.micro_step.numpy()) % 2 == 1


@pytest.mark.parametrize("accounted", [False, True])
def test_a_fit_after_an_interrupted_one_begins_with_a_new_lot(accounted):
    # Out of step, every release would hold parts of two lots, and one example of
    # both with twice the bound.
    model, lots = one_example_in(lots_of=2)
    more = [dp.callbacks.PrivacyAccountant(delta=1e-3)] if accounted else []
    interrupt(model, lots, *more)
    recorder = Recorder()
    model.fit(lots, epochs=3, verbose=0, callbacks=[recorder, *more])
    assert len(recorder.releases()) > 30
    assert recorder.releases().max() <= 1.0 + 0.01


def test_a_fit_from_a_backup_in_the_middle_of_a_lot_begins_with_a_new_lot(tmp_path):
    # Keras begins the epoch again, and the pipeline with it.
    model, lots = one_example_in(lots_of=2)
    interrupt(
        model, lots, keras.callbacks.BackupAndRestore(tmp_path / "b", save_freq=1)
    )
    resumed, lots = one_example_in(lots_of=2)
    recorder = Recorder()
    backup = keras.callbacks.BackupAndRestore(tmp_path / "b")
    resumed.fit(lots, epochs=3, verbose=0, callbacks=[backup, recorder])
    assert int(resumed.optimizer.releases.numpy()) == 1 + 3 * 20
    assert recorder.releases().max() <= 1.0 + 0.01


def test_single_batches_neither_finish_a_lot_of_fit_nor_begin_one_for_it():
    model, lots = one_example_in(lots_of=2)
    interrupt(model, lots)
    batch = next(iter(lots))
    model.train_on_batch(*batch)
    assert int(model.optimizer._release.micro_step.numpy()) == 1
    model.train_on_batch(*batch)  # Batches of one caller do make a lot.
    assert int(model.optimizer._release.micro_step.numpy()) == 2
    model.train_on_batch(*batch)
    recorder = Recorder()
    model.fit(lots, epochs=2, verbose=0, callbacks=[recorder])
    assert recorder.releases().max() <= 1.0 + 0.01


def test_an_interrupted_accountant_does_not_vouch_for_the_sampling_of_others():
    model, lots = one_example_in(lots_of=2)
    interrupt(model, lots, dp.callbacks.PrivacyAccountant(delta=1e-3))
    model.train_on_batch(*next(iter(lots)))
    sampled = [type(s.sampling).__name__ for s in model.optimizer.ledger.segments]
    assert sampled == ["Poisson", "FullBatch"]
