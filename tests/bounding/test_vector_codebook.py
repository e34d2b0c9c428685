"""A codebook of one's own vectors: bounded by them, accounted by them, saved by value."""

import json

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from keras_dp_ext import accounting, noise
from keras_dp_ext.bounding import Codebook, VectorCodebook
from keras_dp_ext.bounding import codebook as codebooks
from keras_dp_ext.gradients import MaterializedGradients
from keras_dp_ext.mechanisms import Encoded

VECTORS = [[0.0, -4.0, 3.0, 0.5], [1.0, 1.0, 1.0, 1.0], [0.1, 0.0, 0.0, 0.0]]


def test_any_gradient_is_dominated_by_one_of_the_vectors():
    mechanism = Encoded(VectorCodebook(VECTORS))
    ordered = -np.sort(-np.abs(VECTORS), axis=1)
    rng = np.random.default_rng(0)
    seen = set()
    for row in np.concatenate([1e6 * rng.standard_t(1, [40, 4]), 1e3 * np.eye(4)]):
        gradients = MaterializedGradients([row[None].astype("float32")])
        (encoded,) = mechanism.bound(gradients)
        ranked = -np.sort(-np.abs(np.asarray(encoded)))
        dominating = np.flatnonzero(np.all(ranked <= ordered + 1e-6, axis=1))
        assert dominating.size
        seen.add(tuple(np.round(ranked, 5)))
    assert len(seen) > 1


@pytest.mark.parametrize("name", ["gaussian", "student-t", "laplace"])
def test_the_cost_is_that_of_the_vectors_themselves(name):
    distribution = noise.get(name).with_scale(5.0)
    claim = Encoded(VectorCodebook(VECTORS), distribution).claim(4).proven
    direct = accounting.NoiseRelease(distribution, VECTORS)
    for sampling in (accounting.FullBatch(), accounting.Poisson(0.1)):
        figures = [
            accounting.rdp_per_release(event, sampling, [2.0, 8.0])
            for event in (claim, direct)
        ]
        np.testing.assert_allclose(*figures, rtol=1e-5)


def test_more_vectors_below_the_greatest_cost_nothing():
    """The bound is the maximum over the vectors (Nasr et al., Lemma 5)."""
    figures = []
    for vectors in (VECTORS[:1], [VECTORS[0], [0.0, 2.0, 1.0, 0.5], [0.4] * 4]):
        claim = Encoded(VectorCodebook(vectors), noise.StudentT(9, 5.0)).claim(4)
        entry = claim.proven, accounting.Poisson(0.1), 20
        figures.append(accounting.epsilon([entry], 1e-5))
    assert figures[0] == figures[1]


def test_long_vectors_become_staircases_below_them():
    vectors = np.random.default_rng(0).standard_normal([3, 2000])
    codebook = VectorCodebook(vectors)
    (block,) = codebook.blocks(2000)
    stairs = np.repeat(block.table, block.widths, axis=1)
    ordered = -np.sort(-np.abs(vectors), axis=1)
    assert np.all(stairs <= ordered)
    assert np.all(np.linalg.norm(stairs, axis=1) <= codebook.norm * (1 + 1e-6))
    assert codebook.norm > 0.97 * np.linalg.norm(vectors, axis=1).max()
    assert block.table.shape[1] < 500


def test_equal_values_are_equal_and_others_are_not():
    turned = [[-3.0, 0.5, 0.0, 4.0], *VECTORS[1:]]  # the same magnitudes
    assert VectorCodebook(VECTORS) == VectorCodebook(turned)
    assert hash(VectorCodebook(VECTORS)) == hash(VectorCodebook(turned))
    # Same size and same norm, which must not share a cached profile.
    one, other = VectorCodebook([[3.0, 4.0]]), VectorCodebook([[5.0, 0.0]])
    assert one.norm == other.norm and one != other and one != Codebook()
    assert one.profiles(2)[0].tolist() == [3.0, 4.0]
    assert other.profiles(2)[0].tolist() == [5.0]
    restored = codebooks.get(json.loads(json.dumps(one.serialize())))
    assert restored == one and type(restored) is VectorCodebook


@pytest.mark.parametrize(
    "vectors", [[[np.nan, 1.0]], [[0.0, 0.0]], [[[1.0]]], [], [[1e200, 1.0]]]
)
def test_vectors_that_bound_nothing_are_refused(vectors):
    with pytest.raises(ValueError, match="vectors"):
        VectorCodebook(vectors)


@pytest.mark.parametrize("vectors", [VECTORS, np.array(VECTORS), np.eye(4, dtype=int)])
def test_vectors_may_be_given_as_they_are(vectors):
    mechanism = dp.optimizers.EncodedSGD(codebook=vectors).mechanism
    assert mechanism.codebook == VectorCodebook(vectors)


@pytest.mark.parametrize("codebook", ["normal", [Codebook()], 3, np.array(["a"])])
def test_what_is_no_codebook_is_refused(codebook):
    with pytest.raises(ValueError, match="array of vectors"):
        dp.optimizers.EncodedSGD(codebook=codebook)


def test_a_model_of_another_size_is_refused():
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.EncodedSGD(codebook=VectorCodebook(VECTORS)), "mse")
    with pytest.raises(ValueError, match="4 entries"):
        model.fit(np.ones([8, 4]), np.ones([8, 1]), verbose=0)


def test_the_most_similar_vector_is_taken_not_the_longest():
    mechanism = Encoded(VectorCodebook([[9.0, 9.0], [1.0, 0.0]]))
    (encoded,) = mechanism.bound(MaterializedGradients([np.float32([[5.0, 0.1]])]))
    np.testing.assert_allclose(encoded, [1.0, 0.0])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_training_reports_its_epsilon_and_is_saved_by_value(tmp_path, jit_compile):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    codebook = VectorCodebook(VECTORS)
    optimizer = dp.optimizers.EncodedSGD(
        learning_rate=0.01, codebook=codebook, noise=noise.StudentT(9, 8.0)
    )
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    x = np.random.default_rng(0).standard_normal([60, 3]).astype("float32")
    data = dp.data.poisson_batches(x, x[:, :1], batch_size=6)
    model.fit(data, verbose=0)
    spent = dp.accounting.epsilon_of(model, delta=1e-3)
    direct = accounting.NoiseRelease(noise.StudentT(9, 8.0), VECTORS)
    entry = direct, accounting.Poisson(0.1), 10
    assert spent == pytest.approx(accounting.epsilon([entry], 1e-3), rel=1e-4)
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras")
    assert restored.optimizer.mechanism.codebook == codebook
    assert dp.accounting.epsilon_of(restored, delta=1e-3) == spent
