"""Private principal components: the right subspace, the noise that is claimed."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from keras_dp_ext.accounting.events import GaussianRelease
from keras_dp_ext.accounting.sampling import FullBatch, Poisson
from keras_dp_ext.data import PrivatePCA, poisson_batches, shuffled_batches
from keras_dp_ext.data.layers.private_pca import symmetric_noise, unit_rows


@pytest.fixture(scope="module")
def data() -> np.ndarray:
    """3,000 points near a plane of dimension 3 in 12 dimensions."""
    rng = np.random.default_rng(0)
    plane = rng.normal(size=[3000, 3]) @ rng.normal(size=[3, 12])
    return (plane + 0.05 * rng.normal(size=plane.shape)).astype(np.float32)


def distance_of_subspaces(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a @ a.T - b @ b.T))


def adapted(data: np.ndarray, **arguments) -> PrivatePCA:
    layer = PrivatePCA(num_components=3, **arguments)
    layer.adapt(data, noise_seed=1)
    return layer


def test_without_noise_it_is_the_svd_of_unit_rows(data):
    rows = data / np.linalg.norm(data, axis=1, keepdims=True)
    expected = np.linalg.svd(rows, full_matrices=False)[2][:3].T
    components = adapted(data, noise_multiplier=0.0).components.numpy()
    assert distance_of_subspaces(components, expected) < 1e-4
    np.testing.assert_allclose(components.T @ components, np.eye(3), atol=1e-5)


def test_noise_blurs_the_components_more_and_more(data):
    exact = adapted(data, noise_multiplier=0.0).components.numpy()
    errors = [
        distance_of_subspaces(
            adapted(data, noise_multiplier=sigma).components.numpy(), exact
        )
        for sigma in (1.0, 16.0, 1000.0)
    ]
    assert 0 < errors[0] < 0.05 < errors[1] < errors[2]


def test_one_row_changes_the_matrix_by_frobenius_norm_one():
    rng = np.random.default_rng(0)
    wild = np.stack(
        [
            rng.normal(size=7),
            1e200 * rng.normal(size=7),
            1e-200 * rng.normal(size=7),
            np.eye(7)[2],
        ]
    )
    for row in unit_rows(wild):
        assert np.linalg.norm(np.outer(row, row)) == pytest.approx(1.0)


def test_rows_that_cannot_be_normalised_count_as_nothing():
    broken = np.array([[np.nan, 1.0], [np.inf, 1.0], [0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(unit_rows(broken), [[0, 0], [0, 0], [0, 0], [0.6, 0.8]])


def test_noise_is_standard_in_frobenius_isometric_coordinates():
    """Along any direction x x^T in which a neighbour may differ its deviation is 1."""
    rng = np.random.default_rng(0)
    noises = [symmetric_noise(5, rng) for _ in range(4000)]
    assert all(np.array_equal(noise, noise.T) for noise in noises[:10])
    directions = [np.eye(5)[0], np.ones(5), np.array([3.0, -1.0, 0.0, 0.5, 2.0])]
    for direction in directions:
        x = direction / np.linalg.norm(direction)
        along = [x @ noise @ x for noise in noises]
        assert stats.kstest(along, "norm").pvalue > 1e-3


def test_whitening_gives_components_the_same_variance_and_energy(data):
    plain, white = (
        adapted(data, noise_multiplier=0.0, whitening=power)(data).numpy()
        for power in (0.0, 0.5)
    )
    variances = np.mean(white**2, axis=0)
    np.testing.assert_allclose(variances, variances.mean(), rtol=1e-3)
    assert np.ptp(np.mean(plain**2, axis=0)) > 0.01
    assert np.sum(variances) == pytest.approx(np.sum(np.mean(plain**2, axis=0)))


def test_components_are_finite_when_noise_drowns_the_data(data):
    layer = PrivatePCA(num_components=12, noise_multiplier=1e6, whitening=0.5)
    layer.adapt(data[:5])
    assert np.isfinite(layer.components.numpy()).all()


def test_it_claims_a_gaussian_release():
    layer = PrivatePCA(num_components=2, noise_multiplier=7.0)
    assert layer.claim.proven == GaussianRelease(7.0)
    assert layer.sampling == FullBatch()
    assert PrivatePCA(2, 7.0, sampling_rate=0.1).sampling == Poisson(0.1)


def test_every_adapt_counts_as_a_release(data):
    layer = PrivatePCA(num_components=3, noise_multiplier=1.0)
    assert layer.releases == 0
    layer.adapt(data)
    layer.adapt(data)
    assert layer.releases == 2


def test_the_claim_cannot_be_changed_afterwards(data):
    layer = PrivatePCA(num_components=3, noise_multiplier=1.0)
    layer.noise_multiplier = 2.0
    layer.adapt(data)
    with pytest.raises(ValueError, match="must not change"):
        layer.noise_multiplier = 100.0
    assert layer.claim.proven == GaussianRelease(2.0)
    with pytest.raises(AttributeError):
        layer.sampling_rate = 0.01


def test_noise_comes_from_the_operating_system(data):
    def draw() -> np.ndarray:
        keras.utils.set_random_seed(0)
        layer = PrivatePCA(num_components=3, noise_multiplier=5.0)
        layer.adapt(data)
        return layer.components.numpy()

    assert distance_of_subspaces(draw(), draw()) > 1e-4


def test_a_sample_of_the_rows_is_used(data):
    full, sampled = (
        adapted(data, noise_multiplier=0.0, sampling_rate=rate) for rate in (1.0, 0.01)
    )
    distance = distance_of_subspaces(
        full.components.numpy(), sampled.components.numpy()
    )
    assert 1e-5 < distance < 0.1


def test_a_data_set_that_repeats_examples_is_refused(data):
    layer = PrivatePCA(num_components=3, noise_multiplier=0.0)
    with pytest.raises(ValueError, match="each example once"):
        layer.adapt(poisson_batches(data, batch_size=100))
    for count in (None, 2):
        with pytest.raises(ValueError, match="each example once"):
            layer.adapt(
                shuffled_batches(data, batch_size=100).repeat(count).prefetch(1)
            )
    layer.adapt(shuffled_batches(data, batch_size=100))
    exact = adapted(data, noise_multiplier=0.0).components.numpy()
    assert distance_of_subspaces(layer.components.numpy(), exact) < 1e-4


def test_a_copy_behind_the_originals_is_refused(data):
    """Augmented copies would count an example twice: it would move the sum twice."""
    layer = PrivatePCA(num_components=3, noise_multiplier=0.0)
    rows = tf.data.Dataset.from_tensor_slices(data)
    for doubled in (
        rows.concatenate(rows.map(tf.negative)),
        rows.batch(9).map(tf.identity).concatenate(rows.batch(9)),
        tf.data.Dataset.sample_from_datasets([rows, rows]),
    ):
        with pytest.raises(ValueError, match="each example once"):
            layer.adapt(
                doubled.batch(100) if doubled.element_spec.shape.rank < 2 else doubled
            )
    others = tf.data.Dataset.from_tensor_slices(data[400:])
    layer.adapt(rows.take(400).concatenate(others).batch(100))
    exact = adapted(data, noise_multiplier=0.0).components.numpy()
    assert distance_of_subspaces(layer.components.numpy(), exact) < 1e-4
    # Two parts of one element are one row.
    columns = tf.data.Dataset.zip((rows, rows.map(tf.negative))).batch(100)
    layer.adapt(columns)


def test_padding_is_no_row_whatever_becomes_of_it(data):
    """An example would otherwise replace a row, at a sensitivity above 1."""
    lots = shuffled_batches(data, batch_size=800).map(lambda x, y, w: (x + 1.0, y, w))
    layer = PrivatePCA(num_components=3, noise_multiplier=0.0)
    layer.adapt(lots)
    exact = adapted(data + 1.0, noise_multiplier=0.0).components.numpy()
    assert distance_of_subspaces(layer.components.numpy(), exact) < 1e-4


def test_components_survive_saving_and_do_not_train(data, tmp_path):
    layer = adapted(data, noise_multiplier=2.0)
    model = keras.Sequential([keras.Input([12]), layer, keras.layers.Dense(1)])
    assert [weight.path for weight in model.trainable_variables] == [
        weight.path for weight in model.layers[1].trainable_variables
    ]
    before = layer.components.numpy()
    model.compile("sgd", "mse")
    model.fit(data, data[:, 0], verbose=0)
    np.testing.assert_array_equal(layer.components.numpy(), before)
    model.save(tmp_path / "model.keras")
    restored = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(restored.predict(data), model.predict(data))
    assert restored.layers[0].releases == 1
    assert restored.layers[0].claim == layer.claim
    assert not restored.layers[0].trainable


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_components": 0},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": np.nan},
        {"sampling_rate": 0.0},
        {"sampling_rate": 1.5},
        {"whitening": 1.0},
    ],
)
def test_wrong_arguments_are_named(arguments):
    with pytest.raises(ValueError, match=f"`{next(iter(arguments))}`"):
        PrivatePCA(**arguments)


def test_more_components_than_features_are_refused(data):
    with pytest.raises(ValueError, match="number of features"):
        PrivatePCA(num_components=13, noise_multiplier=1.0).adapt(data)
