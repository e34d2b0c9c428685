"""The codebook: exact law, exact norms, and profiles that are never too small."""

import json

import numpy as np
import pytest
from scipy import stats

from keras_dp_ext.bounding import Codebook, EmpiricalDistribution
from keras_dp_ext.bounding import codebook as codebooks
from keras_dp_ext.noise import Laplace, StudentT


def vectors(block):
    """The whole vectors, each sorted from the greatest magnitude down."""
    return np.repeat(block.table, block.widths, axis=1).astype(np.float64)


@pytest.mark.parametrize("num_parameters", [1, 2, 8, 255, 256, 1000, 26_010])
def test_vectors_are_sorted_and_have_the_norm(num_parameters):
    (block,) = Codebook(size=50, norm=0.7).blocks(num_parameters)
    full = vectors(block)
    assert full.shape == (50, num_parameters)
    assert np.all(np.diff(full, axis=1) <= 0)
    assert np.all(full >= 0)
    norms = np.linalg.norm(full, axis=1)
    # Rounded down to float32: never above what is accounted.
    assert np.all(norms <= 0.7)
    np.testing.assert_allclose(norms, 0.7, rtol=1e-6)


def test_small_vectors_have_the_law_of_sorted_normals():
    num_parameters, draws = 40, 4000
    (block,) = Codebook(size=draws, threshold=0.0).blocks(num_parameters)
    direct = np.abs(np.random.default_rng(1).standard_normal([draws, num_parameters]))
    direct = -np.sort(-direct, axis=1)
    direct /= np.linalg.norm(direct, axis=1, keepdims=True)
    ours = vectors(block)
    for position in (0, 1, 5, 20, 39):
        assert stats.ks_2samp(ours[:, position], direct[:, position]).pvalue > 1e-3
    # The joint law too: neighbouring order statistics depend on each other.
    gaps = [v[:, 0] - v[:, 3] for v in (ours, direct)]
    assert stats.ks_2samp(*gaps).pvalue > 1e-3


def test_large_vectors_are_a_staircase_below_sorted_normals():
    num_parameters = 50_000
    (block,) = Codebook(size=40).blocks(num_parameters)
    rng = np.random.default_rng(2)
    direct = -np.sort(-np.abs(rng.standard_normal([40, num_parameters])), axis=1)
    # The same staircase, cut into vectors that were drawn and sorted in full.
    stairs = direct[:, block.ends - 1]
    assert np.all(np.repeat(stairs, block.widths, axis=1) <= direct)
    lengths = np.sqrt(stairs**2 @ block.widths)
    assert np.all(lengths > 0.985 * np.linalg.norm(direct, axis=1))
    stairs /= lengths[:, None]
    for step in (0, 10, 100, 150, 200):
        assert stats.ks_2samp(block.table[:, step], stairs[:, step]).pvalue > 1e-3


def test_entries_below_the_threshold_are_zero():
    (block,) = Codebook(size=20, threshold=0.5).blocks(1000)
    zeros = np.mean(vectors(block) == 0, axis=1)
    expected = 1 - 2 * stats.norm.sf(0.5)
    assert np.all(np.abs(zeros - expected) < 0.08)


@pytest.mark.parametrize("num_parameters", [1, 8, 300, 26_010])
def test_profiles_dominate_the_vectors_and_cost_less_than_one_percent(num_parameters):
    codebook = Codebook(distribution=["gaussian", "laplace", StudentT(3)], size=60)
    (block,) = codebook.blocks(num_parameters)
    magnitudes, counts = codebook.profiles(num_parameters)
    assert np.all(np.diff(magnitudes) > 0)
    for full, count in zip(vectors(block), counts, strict=True):
        profile = np.repeat(magnitudes, count)[::-1]
        nonzero = full[full > 0]
        assert profile.shape == nonzero.shape
        assert np.all(profile >= nonzero)
    assert np.all(counts @ magnitudes**2 < 1.01)


def test_ten_million_parameters_fit_easily():
    codebook = Codebook()
    (block,) = codebook.blocks(10_000_000)
    assert block.table.nbytes + block.ends.nbytes < 2e6
    assert block.table.shape[0] == 1000
    magnitudes, counts = codebook.profiles(10_000_000)
    assert magnitudes.nbytes + counts.nbytes < 50e6


def test_equal_recipes_give_equal_vectors_and_seeds_differ():
    (first,), (second,) = (Codebook(size=5, seed=3).blocks(500) for _ in range(2))
    np.testing.assert_array_equal(first.table, second.table)
    (other,) = Codebook(size=5, seed=4).blocks(500)
    assert not np.array_equal(first.table, other.table)


def test_the_draw_is_frozen():
    # Values of the first version: a recipe in an old ledger must keep its meaning.
    (block,) = Codebook(size=2, seed=0).blocks(3)
    expected = [[0.884096, 0.427928, 0.187756], [0.802202, 0.477236, 0.358772]]
    np.testing.assert_allclose(block.table, expected, atol=1e-6)


def test_layers_have_their_own_blocks_and_norms():
    codebook = Codebook(size=7, norm=2.0, layer_sizes=(100, 4), layer_norms=(3, 4))
    blocks = codebook.blocks(104)
    norms = [np.linalg.norm(vectors(block), axis=1) for block in blocks]
    np.testing.assert_allclose(norms[0], 2.0 * 0.6, rtol=1e-6)
    np.testing.assert_allclose(norms[1], 2.0 * 0.8, rtol=1e-6)
    magnitudes, counts = codebook.profiles(104)
    np.testing.assert_allclose(counts @ magnitudes**2, 4.0, rtol=0.01)


def test_layer_norms_default_to_equal_entries():
    small, large = Codebook(size=200, layer_sizes=(50, 5000)).blocks(5050)
    mean_squares = [np.mean(vectors(block) ** 2) for block in (small, large)]
    assert mean_squares[0] == pytest.approx(mean_squares[1], rel=1e-6)


def test_shapes_take_turns():
    codebook = Codebook(distribution=["gaussian", StudentT(2)], size=100)
    (block,) = codebook.blocks(10_000)
    assert np.mean(block.table[1::2, 0]) > 3 * np.mean(block.table[::2, 0])


def test_a_public_histogram_gives_its_own_distribution():
    public = np.random.default_rng(3).laplace(size=200_000)
    empirical = EmpiricalDistribution.from_gradients([public.reshape(2, -1)])
    tails = np.logspace(-4, np.log10(0.5), 20)
    np.testing.assert_allclose(
        empirical.upper_quantile(tails)[:-1],
        Laplace().upper_quantile(tails)[:-1],
        rtol=0.08,
        atol=0.01,
    )
    (ours,) = Codebook(empirical, size=300).blocks(200)
    (exact,) = Codebook(Laplace(), size=300).blocks(200)
    assert stats.ks_2samp(ours.table[:, 100], exact.table[:, 100]).pvalue > 1e-3


@pytest.mark.parametrize(
    "codebook",
    [
        Codebook(),
        Codebook(["gaussian", StudentT(3, 2.0)], size=3, norm=0.5, seed=9),
        Codebook(EmpiricalDistribution((0.0, 1.0, 3.0), (5, 1)), threshold=0.0),
        Codebook(layer_sizes=[3, 4], layer_norms=[1, 2]),
    ],
    ids=["paper", "mixture", "empirical", "layers"],
)
def test_codebooks_survive_json(codebook):
    restored = codebooks.get(json.loads(json.dumps(codebook.serialize())))
    assert restored == codebook
    assert hash(restored) == hash(codebook)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "`size`"),
        ({"norm": 0.0}, "`norm`"),
        ({"threshold": -1.0}, "`threshold`"),
        ({"distribution": "normal-ish"}, "`noise` must be"),
        ({"distribution": []}, "`distribution`"),
        ({"layer_norms": (1.0,)}, "`layer_norms`"),
        ({"layer_sizes": (3,), "layer_norms": (1.0, 2.0)}, "`layer_norms`"),
        ({"layer_sizes": (0, 3)}, "`layer_sizes`"),
    ],
)
def test_bad_recipes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Codebook(**arguments)


def test_a_model_of_another_size_is_refused():
    with pytest.raises(ValueError, match="`num_parameters`"):
        Codebook(layer_sizes=(3, 4)).blocks(8)
    with pytest.raises(ValueError, match="`threshold` must leave"):
        Codebook(threshold=100.0).blocks(8)
