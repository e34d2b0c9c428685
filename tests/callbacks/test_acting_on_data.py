"""Callbacks that let exact training data steer the training are named."""

import warnings

import keras
import numpy as np
import pytest

import keras_dp_ext as dp

K = keras.callbacks


def train(callbacks, model=None, **fit):
    if model is None:
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        model.compile(dp.optimizers.DPSGD(), "mse", metrics=["mae"])
    x = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(
            x,
            x[:, :1],
            batch_size=5,
            verbose=0,
            callbacks=[*callbacks, accountant],
            validation_split=0.2 if fit.pop("validate", False) else 0.0,
            **fit,
        )
    statement = " ".join(accountant.statement().replace("\n-", " ").split())
    warned = [str(w.message) for w in caught if "Not covered" in str(w.message)]
    return model, statement, warned


@pytest.mark.parametrize(
    ("callback", "named"),
    [
        (
            lambda path: K.ReduceLROnPlateau(monitor="loss"),
            'ReduceLROnPlateau(monitor="loss") changes the learning rate by exact',
        ),
        (
            lambda path: K.EarlyStopping(monitor="loss"),
            'EarlyStopping(monitor="loss") decides when to stop by exact',
        ),
        (
            lambda path: K.EarlyStopping(monitor="mae"),
            'EarlyStopping(monitor="mae") decides when to stop by exact',
        ),
        (
            lambda path: K.ModelCheckpoint(
                path / "best.keras", monitor="mae", mode="min", save_best_only=True
            ),
            'ModelCheckpoint(monitor="mae") chooses the weights that are kept',
        ),
        (
            lambda path: K.ModelCheckpoint(str(path / "{epoch}-{loss:.3f}.keras")),
            "ModelCheckpoint writes exact figures of the training data (loss)",
        ),
        (lambda path: K.TerminateOnNaN(), "TerminateOnNaN ends the training by"),
    ],
)
def test_callbacks_that_act_on_training_data_are_named(callback, named, tmp_path):
    _, statement, warned = train([callback(tmp_path)])
    assert f"Not covered: {named}" in statement
    assert len(warned) == 1 and named in warned[0]


def test_subclasses_are_named_by_their_own_name():
    class Patient(K.EarlyStopping):
        pass

    _, statement, _ = train([Patient(monitor="loss", patience=3)])
    assert 'Patient(monitor="loss") decides when to stop' in statement


def test_what_is_not_of_the_training_data_is_not_named(tmp_path):
    _, statement, warned = train(
        [
            K.ReduceLROnPlateau(monitor="val_loss"),
            K.EarlyStopping(monitor="epsilon", mode="min"),
            K.ModelCheckpoint(str(tmp_path / "{epoch}.keras")),
            K.ModelCheckpoint(
                tmp_path / "best.keras", monitor="val_loss", save_best_only=True
            ),
            K.LearningRateScheduler(lambda epoch: 0.1),
        ],
        validate=True,
    )
    assert not warned
    assert "exact figures" not in statement


def test_what_a_former_training_did_is_not_forgotten(tmp_path):
    model, _, _ = train([K.ReduceLROnPlateau(monitor="loss")])
    model.save(tmp_path / "model.keras")
    _, statement, warned = train([], model)
    assert "ReduceLROnPlateau" in statement
    assert not warned
    _, statement, _ = train([], keras.models.load_model(tmp_path / "model.keras"))
    assert "ReduceLROnPlateau" in statement
