"""Models with a `compile` of their own, as KerasHub's tasks: no silent loss of privacy."""

import importlib.util
import warnings

import keras
import numpy as np
import pytest

import keras_dp_ext as dp

X = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")
Y = np.random.default_rng(1).integers(0, 3, 24)


@keras.saving.register_keras_serializable("tests")
class Task(keras.Model):
    """Compiles itself when it is made, as `keras_hub.models.Task` does."""

    def __init__(self, **keywords):
        inputs = keras.Input([4])
        super().__init__(inputs, keras.layers.Dense(3)(inputs), **keywords)
        self.layers[-1].vocabulary_size = 3  # A number, as in KerasHub's backbones.
        self.compile()

    def compile(self, optimizer="auto", loss="auto", **keywords):
        if isinstance(optimizer, str):
            optimizer = keras.optimizers.Adam(5e-5)
        if isinstance(loss, str):
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        super().compile(optimizer=optimizer, loss=loss, **keywords)

    def get_config(self):
        return {"name": self.name}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def train(model, x, y, loss="auto"):
    optimizer = dp.DPAdam(noise_multiplier=2.0, expected_batch_size=8)
    model.compile(optimizer, **({} if loss == "auto" else {"loss": loss}))
    batches = dp.poisson_batches(x, y, batch_size=8, seed=0)
    accountant = dp.PrivacyAccountant(delta=1e-3)
    model.fit(batches, epochs=2, verbose=0, callbacks=[accountant])


def check_that_it_comes_back(model, x, y, path):
    releases, weights = int(model.optimizer.releases), model.get_weights()
    spent = model.optimizer.ledger.epsilon(delta=1e-3)
    assert releases == 6
    with pytest.warns(UserWarning, match="restore_optimizer"):
        model.save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras': `compile()` is custom.
        loaded = keras.models.load_model(path)
    # What the warning is about.
    assert not hasattr(loaded.optimizer, "ledger")
    dp.models.restore_optimizer(loaded, path)
    assert isinstance(loaded.optimizer, dp.optimizers.DPAdam)
    assert loaded.optimizer.ledger.epsilon(delta=1e-3) == pytest.approx(spent)
    assert loaded.optimizer.releases == releases
    for one, other in zip(loaded.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(one, other)
    loaded.fit(dp.poisson_batches(x, y, batch_size=8), verbose=0)
    assert loaded.optimizer.releases == releases + 3
    assert loaded.optimizer.ledger.epsilon(delta=1e-3) > spent


def test_a_task_comes_back_with_its_optimizer_and_what_it_has_spent(tmp_path):
    model = Task()
    train(model, X, Y)
    check_that_it_comes_back(model, X, Y, tmp_path / "task.keras")


def test_the_moments_of_adam_come_back(tmp_path):
    model = Task()
    train(model, X, Y)
    with pytest.warns(UserWarning, match="restore_optimizer"):
        model.save(tmp_path / "task.keras")
    loaded = Task()
    dp.models.restore_optimizer(loaded, tmp_path / "task.keras")
    for one, other in zip(
        loaded.optimizer.variables, model.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_an_ordinary_model_is_saved_without_a_warning(tmp_path):
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    train(model, X, Y, loss)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*compile.*")
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.releases == 6


def test_a_file_without_a_private_optimizer_is_refused(tmp_path):
    model = Task()
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "task.keras")
    with pytest.raises(ValueError, match="private optimizer when it was saved"):
        dp.models.restore_optimizer(Task(), tmp_path / "task.keras")


@pytest.mark.skipif(
    importlib.util.find_spec("keras_hub") is None, reason="keras-hub is not installed"
)
def test_a_task_of_keras_hub_comes_back(tmp_path):
    import keras_hub

    backbone = keras_hub.models.DistilBertBackbone(
        vocabulary_size=20,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=8,
        max_sequence_length=6,
    )
    model = keras_hub.models.DistilBertTextClassifier(
        backbone, num_classes=3, preprocessor=None
    )
    rng = np.random.default_rng(0)
    x = {
        "token_ids": rng.integers(1, 20, (24, 6)),
        "padding_mask": np.ones((24, 6), "int32"),
    }
    train(model, x, Y)
    check_that_it_comes_back(model, x, Y, tmp_path / "task.keras")
