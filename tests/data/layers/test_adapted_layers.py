"""Layers that have looked at the data are in the ledger, or in the statement."""

import functools

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from keras_dp_ext import accounting
from keras_dp_ext.callbacks import PrivacyAccountant

DELTA = 1e-4
X = np.random.default_rng(0).standard_normal([120, 6]).astype("float32")
Y = X[:, :1]
POISSON = accounting.Poisson(0.1)
PCA_COST = accounting.GaussianRelease(0.5), accounting.FullBatch(), 1


def adapted_pca():
    layer = dp.data.PrivatePCA(num_components=3, noise_multiplier=0.5)
    layer.adapt(X)
    return layer


def model_with(*layers, dtype="float32", shape=(6,)):
    model = keras.Sequential(
        [keras.Input(shape, dtype=dtype), *layers, keras.layers.Dense(1)]
    )
    model.compile(dp.optimizers.DPSGD(noise_multiplier=2.0), loss="mse")
    return model


def lots(x=X):
    return dp.data.poisson_batches(x, Y, batch_size=12)


def trained(model, data=None, epochs=1):
    accountant = PrivacyAccountant(delta=DELTA)
    data = lots() if data is None else data
    model.fit(data, epochs=epochs, verbose=0, callbacks=[accountant])
    return accountant


def cost(releases, *more):
    training = accounting.GaussianRelease(2.0), POISSON, releases
    return accounting.epsilon([training, *more], DELTA)


def test_an_adapted_pca_is_accounted_for_by_itself_and_once():
    accountant = trained(model_with(adapted_pca()))
    assert accountant.epsilon == pytest.approx(cost(10, PCA_COST), rel=1e-6)
    trained(accountant.model)
    assert accountant.epsilon == pytest.approx(cost(20, PCA_COST), rel=1e-6)


def test_what_is_added_to_an_optimizers_ledger_stays():
    model = model_with()
    model.optimizer.ledger.add(
        accounting.Claim(accounting.GaussianRelease(0.5)), accounting.FullBatch()
    )
    accountant = trained(model)
    assert accountant.epsilon == pytest.approx(cost(10, PCA_COST), rel=1e-6)
    with pytest.raises(AttributeError):
        model.optimizer.ledger = accounting.Ledger()


def test_a_layer_in_a_model_in_a_model_is_found():
    inner = keras.Sequential([keras.Input([6]), adapted_pca()])
    inputs = keras.Input([6])
    middle = keras.Model(inputs, inner(inputs))
    assert trained(model_with(middle)).epsilon == pytest.approx(
        cost(10, PCA_COST), rel=1e-6
    )


def test_two_models_that_share_a_layer_share_its_cost():
    layer = adapted_pca()
    ledgers = [trained(model_with(layer)).model.optimizer.ledger for _ in range(2)]
    together = accounting.Ledger.merge(ledgers).epsilon(delta=DELTA)
    assert together == pytest.approx(cost(20, PCA_COST), rel=1e-6)
    other = trained(model_with(adapted_pca())).model.optimizer.ledger
    together = accounting.Ledger.merge([*ledgers, other]).epsilon(delta=DELTA)
    assert together == pytest.approx(cost(30, PCA_COST, PCA_COST), rel=1e-6)


def test_a_layer_of_a_reloaded_model_is_the_same_layer(tmp_path):
    model = trained(model_with(adapted_pca())).model
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert trained(loaded).epsilon == pytest.approx(cost(20, PCA_COST), rel=1e-6)
    # The layer alone, in a new model.
    anew = model_with(loaded.layers[0])
    ledgers = [trained(anew).model.optimizer.ledger, loaded.optimizer.ledger]
    together = accounting.Ledger.merge(ledgers).epsilon(delta=DELTA)
    assert together == pytest.approx(cost(30, PCA_COST), rel=1e-6)


def test_a_second_adapt_counts_too():
    layer = adapted_pca()
    model = model_with(layer)
    trained(model)
    layer.adapt(X)
    twice = cost(20, PCA_COST, PCA_COST)
    assert trained(model).epsilon >= twice * (1 - 1e-9)


def test_a_layer_that_nobody_adapted_costs_nothing():
    layer = dp.data.PrivatePCA(num_components=3)
    assert trained(model_with(layer)).epsilon == pytest.approx(cost(10), rel=1e-6)


@pytest.mark.parametrize("way", ["layer", "closure", "list", "partial"])
def test_a_layer_in_the_pipeline_is_found(way):
    layer = adapted_pca()
    stages = [layer]

    def project(layer, x, y, w):
        return layer(x), y, w

    function = {
        "layer": lambda x, y, w: (layer(x), y, w),
        "closure": lambda *batch: project(layer, *batch),
        "list": lambda x, y, w: (stages[0](x), y, w),
        "partial": functools.partial(project, layer),
    }[way]
    accountant = trained(model_with(shape=(3,)), lots().map(function).prefetch(1))
    assert accountant.epsilon == pytest.approx(cost(10, PCA_COST), rel=1e-6)


# Layers without a claim ----------------------------------------------------------


def said(accountant):
    return " ".join(accountant.statement().split())


def normalization():
    layer = keras.layers.Normalization(name="scaling")
    layer.adapt(X)
    return layer


def test_a_layer_that_was_adapted_without_noise_is_named(tmp_path):
    model = model_with(keras.Sequential([keras.Input([6]), normalization()]))
    assert "Not covered: layer `scaling` was adapted on data" in said(trained(model))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert "layer `scaling` was adapted on data" in said(trained(loaded))
    assert loaded.optimizer.ledger.uncovered == ("layer `scaling` was adapted on data",)


def test_a_layer_of_the_pipeline_that_was_adapted_without_noise_is_named():
    layer = normalization()
    data = lots().map(lambda x, y, w: (layer(x), y, w))
    assert "layer `scaling` was adapted on data" in said(trained(model_with(), data))


WORDS = np.array(["a b", "b c", "c"] * 40)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: keras.layers.TextVectorization(output_sequence_length=2, name="text"),
        lambda: keras.layers.StringLookup(name="text"),
    ],
)
def test_a_vocabulary_that_was_adapted_is_named(layer):
    layer = layer()
    embedding = keras.Sequential([keras.layers.Embedding(9, 2), keras.layers.Flatten()])
    layer.adapt(WORDS)
    data = lots(WORDS).map(lambda x, y, w: (layer(x[:, None]), y, w))
    shape = (2,) if isinstance(layer, keras.layers.TextVectorization) else (1,)
    accountant = trained(model_with(embedding, dtype="int64", shape=shape), data)
    text = said(accountant)
    assert "layer `text` was adapted on data" in text
    assert text.count("was adapted") == 1


@pytest.mark.parametrize(
    "layer",
    [
        keras.layers.Normalization(mean=0.5, variance=2.0),
        keras.layers.Normalization(),
        keras.layers.StringLookup(vocabulary=["a", "b"]),
        keras.layers.StringLookup(),
        keras.layers.TextVectorization(vocabulary=["a", "b"]),
        keras.layers.TextVectorization(),
        keras.layers.IntegerLookup(vocabulary=[1, 2]),
        keras.layers.Discretization(bin_boundaries=[0.0, 1.0]),
        keras.layers.Discretization(num_bins=3),
        keras.layers.Dense(2),
    ],
)
def test_constants_that_were_passed_are_nothing_to_speak_of(layer):
    from keras_dp_ext.data.layers.adapted import uncovered_by

    if isinstance(layer, keras.layers.Normalization):
        layer.build((None, 6))
    assert uncovered_by(layer) is None


def test_other_layers_that_adapt_are_named():
    from keras_dp_ext.data.layers.adapted import uncovered_by

    class Home(keras.layers.Layer):
        def adapt(self, data):
            self.middle = np.mean(data)

    bins = keras.layers.Discretization(num_bins=3, name="bins")
    bins.adapt(X)
    numbers = keras.layers.IntegerLookup(name="numbers")
    numbers.adapt(np.arange(5))
    assert uncovered_by(bins) == "layer `bins` was adapted on data"
    assert uncovered_by(numbers).startswith("layer `numbers` was adapted on data")
    assert "may hold statistics" in uncovered_by(Home())
