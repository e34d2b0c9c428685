"""Every encoded row is dominated, rank by rank, by a vector of the codebook."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_dp_ext.bounding import Codebook, bucket_ranking
from keras_dp_ext.bounding.encode_rows import encode_rows
from keras_dp_ext.gradients.base import OuterRows
from keras_dp_ext.noise import StudentT
from tests.nasr_algorithms import algorithm_2

RANKINGS = ["bucket", "exact"]


def full_vectors(block):
    return np.repeat(block.table, block.widths, axis=1)


def encode(rows, blocks, ranking):
    return encode_rows(blocks, ranking)([tf.constant(rows, tf.float32)])[0].numpy()


def assert_dominated(encoded, vectors):
    """Some vector bounds the sorted magnitudes, entry by entry, exactly."""
    for row in encoded:
        ranked = -np.sort(-np.abs(row))
        assert np.any(np.all(ranked <= vectors, axis=1))


def assert_shrunk(encoded, rows):
    """No coordinate grows or changes its sign."""
    assert np.all(np.abs(encoded) <= np.abs(rows))
    assert np.all(encoded * np.sign(rows) >= 0)


KINDS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "sparse": lambda rng, n: rng.standard_normal(n) * (rng.random(n) < 0.05),
    "constant": lambda rng, n: np.full(n, 0.37),
    "signs": lambda rng, n: rng.choice([-1.0, 1.0], n),
    "one_spike": lambda rng, n: np.eye(1, n, rng.integers(n))[0],
    "heavy_tailed": lambda rng, n: rng.standard_cauchy(n) ** 3,
    "ramp": lambda rng, n: rng.permutation(n) / n,
    "few_values": lambda rng, n: rng.choice([0.0, 1e-3, 1.0, -5.0], n),
    "geometric": lambda rng, n: 0.97 ** rng.permutation(n),
    "all_exponents": lambda rng, n: 2.0 ** rng.uniform(-149, 127, n),
}
SCALES = [1e-38, 1e-20, 1e-6, 1e-3, 1.0, 1e3, 1e20, 1e38]


@pytest.mark.parametrize("ranking", RANKINGS)
@pytest.mark.parametrize("num_parameters", [1, 2, 9, 300, 1500])
@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    scale=st.sampled_from(SCALES),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_gradient_is_dominated(ranking, num_parameters, kind, scale, seed):
    codebook = Codebook(["gaussian", StudentT(2)], size=20)
    (block,) = codebook.blocks(num_parameters)
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore", under="ignore"):
        rows = np.array([KINDS[kind](rng, num_parameters) for _ in range(3)])
        rows = np.clip(rows * scale, -3e38, 3e38).astype(np.float32)
    encoded = encode(rows, [block], ranking)
    assert_dominated(encoded, full_vectors(block))
    assert_shrunk(encoded, rows)


@pytest.mark.parametrize("ranking", RANKINGS)
@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.lists(
            st.floats(width=32, allow_nan=False, allow_infinity=False),
            min_size=6,
            max_size=6,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_six_floats_are_dominated(ranking, rows):
    (block,) = Codebook(size=10).blocks(6)
    rows = np.array(rows, np.float32)
    encoded = encode(rows, [block], ranking)
    assert_dominated(encoded, full_vectors(block))
    assert_shrunk(encoded, rows)


@pytest.mark.parametrize("scale", [0.02, 0.3, 1.0, 50.0])
@pytest.mark.parametrize("num_parameters", [7, 200, 3000])
def test_exact_ranking_is_the_papers_algorithm(scale, num_parameters):
    (block,) = Codebook(["gaussian", StudentT(2)], size=25).blocks(num_parameters)
    rng = np.random.default_rng(5)
    rows = rng.standard_t(3, [6, num_parameters]) * scale / np.sqrt(num_parameters)
    rows = rows.astype(np.float32)
    expected = [algorithm_2(row, full_vectors(block)) for row in rows]
    np.testing.assert_array_equal(encode(rows, [block], "exact"), expected)


def test_buckets_lose_little_against_exact_ranking():
    (block,) = Codebook(size=1).blocks(20_000)
    rows = np.random.default_rng(6).standard_normal([4, 20_000]).astype(np.float32)
    bucket, exact = (encode(rows, [block], ranking) for ranking in RANKINGS)
    assert np.all(np.abs(bucket) <= np.abs(exact))
    kept = np.linalg.norm(bucket, axis=1) / np.linalg.norm(exact, axis=1)
    assert np.all(kept > 0.97)


def test_small_gradients_of_the_codebooks_shape_pass_unchanged():
    (block,) = Codebook().blocks(20_000)
    rows = np.random.default_rng(7).standard_normal([2, 20_000]).astype(np.float32)
    rows *= 0.3 / np.linalg.norm(rows, axis=1, keepdims=True)
    kept = encode(rows, [block], "bucket") / rows
    assert np.mean(kept > 0.999) > 0.98


@pytest.mark.parametrize("ranking", RANKINGS)
def test_the_vector_is_chosen_by_shape(ranking):
    """Heavy tails keep their spikes if the codebook knows heavy tails."""
    n = 2000
    rows = np.random.default_rng(8).standard_t(2, [8, n]).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    similarity = []
    for distribution in ("gaussian", ["gaussian", StudentT(2)]):
        encoded = encode(rows, Codebook(distribution, size=40).blocks(n), ranking)
        similarity.append(np.mean(np.sum(encoded * rows, axis=1)))
    assert similarity[1] > 1.2 * similarity[0]


@pytest.mark.parametrize("ranking", RANKINGS)
def test_zero_rows_stay_exactly_zero_and_bad_rows_become_zero(ranking):
    (block,) = Codebook(size=5).blocks(50)
    rows = np.random.default_rng(9).standard_normal([5, 50]).astype(np.float32)
    rows[1] = 0.0
    rows[2, 7] = np.nan
    rows[3, 0] = -np.inf
    encoded = encode(rows, [block], ranking)
    assert np.all(encoded[1:4] == 0)
    alone = encode(rows[[0, 4]], [block], ranking)
    np.testing.assert_array_equal(encoded[[0, 4]], alone)


@pytest.mark.parametrize("ranking", RANKINGS)
def test_a_row_does_not_see_the_other_rows(ranking):
    (block,) = Codebook(size=30).blocks(80)
    rows = np.random.default_rng(10).standard_normal([6, 80]).astype(np.float32)
    together = encode(rows, [block], ranking)
    for i in range(6):
        np.testing.assert_array_equal(
            together[i], encode(rows[i : i + 1], [block], ranking)[0]
        )


@pytest.mark.parametrize("ranking", RANKINGS)
def test_how_parameters_are_cut_into_variables_does_not_matter(ranking):
    (block,) = Codebook(size=30).blocks(60)
    rows = np.random.default_rng(11).standard_normal([4, 60]).astype(np.float32)
    parts = [rows[:, :10].reshape(4, 5, 2), rows[:, 10:11], rows[:, 11:]]
    encoded = encode_rows([block], ranking)([tf.constant(part) for part in parts])
    assert [tuple(part.shape) for part in encoded] == [p.shape for p in parts]
    joined = np.concatenate([part.numpy().reshape(4, -1) for part in encoded], axis=1)
    np.testing.assert_array_equal(joined, encode(rows, [block], ranking))


@pytest.mark.parametrize("ranking", RANKINGS)
def test_layers_are_dominated_by_blocks_of_the_same_vector(ranking):
    codebook = Codebook(["gaussian", StudentT(2)], size=15, layer_sizes=(40, 7))
    blocks = codebook.blocks(47)
    rng = np.random.default_rng(12)
    for scale in (1e-3, 1.0, 1e3):
        parts = [rng.standard_t(2, [5, n]) * scale for n in (40, 7)]
        parts = [part.astype(np.float32) for part in parts]
        encoded = encode_rows(blocks, ranking)([tf.constant(p) for p in parts])
        for row in range(5):
            fits = [
                np.all(
                    -np.sort(-np.abs(part.numpy()[row])) <= full_vectors(block), axis=1
                )
                for part, block in zip(encoded, blocks, strict=True)
            ]
            assert np.any(fits[0] & fits[1])


@pytest.mark.parametrize("ranking", RANKINGS)
def test_graph_and_xla_encode_alike(ranking):
    (block,) = Codebook(size=30).blocks(500)
    rows = np.random.default_rng(13).standard_t(3, [5, 500]).astype(np.float32)
    row_map = encode_rows([block], ranking)
    results = [
        tf.function(row_map, jit_compile=jit, autograph=False)([tf.constant(rows)])[0]
        for jit in (False, True)
    ]
    for result in results:
        assert_dominated(result.numpy(), full_vectors(block))
    np.testing.assert_allclose(*results, rtol=1e-6)


def test_an_adversary_cannot_gain_from_bucket_edges():
    """The attack: magnitudes that crowd on both sides of every bucket's edge."""
    n = 4096
    (block,) = Codebook(size=5).blocks(n)
    bits = np.float32(1.0).view(np.int32) - np.arange(2**24, dtype=np.int32)
    codes = bucket_ranking._code(tf.constant(bits)).numpy()
    edges = bits[1:][np.diff(codes) < 0]
    assert len(edges) > 60
    edges = np.concatenate([edges, bits[: n // 2 - len(edges)]])
    rows = np.concatenate([edges, edges - 1]).astype(np.int32).view(np.float32)
    for scale in (1e-3, 1.0, 1e3):
        encoded = encode(scale * rows[None], [block], "bucket")
        assert_dominated(encoded, full_vectors(block))


def test_giving_a_bucket_its_first_position_would_be_caught():
    """The domination tests can fail: the greatest psi of a bucket is too much."""
    (block,) = Codebook(size=5).blocks(100)
    vectors = full_vectors(block)
    too_much = np.full([1, 100], vectors[:, 0].max(), np.float32)
    with pytest.raises(AssertionError):
        assert_dominated(too_much, vectors)


def test_unknown_rankings_are_refused():
    with pytest.raises(ValueError, match="`ranking` must be one of"):
        encode_rows(Codebook(size=2).blocks(3), "random")


FACTORS = {
    **{name: kind for name, kind in KINDS.items() if name != "all_exponents"},
    "half_of_all_exponents": lambda rng, n: 2.0 ** rng.uniform(-74, 60, n),
    "zeros": lambda rng, n: np.zeros(n),
}


def outer_rows(rng, kinds, inputs=23, outputs=31):
    left, right = (
        np.stack([FACTORS[kind](rng, n) for kind in kinds]).astype(np.float32)
        for n in (inputs, outputs)
    )
    return OuterRows(tf.constant(left), tf.constant(right))


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(FACTORS)), min_size=1, max_size=4),
    scale=st.sampled_from([1e-12, 1e-3, 1.0, 1e6]),
    seed=st.integers(0, 2**32 - 1),
)
def test_products_beside_a_matrix_are_dominated(kinds, scale, seed):
    """One ranking of both, of which the products are never ranked one by one."""
    rng = np.random.default_rng(seed)
    products = outer_rows(rng, kinds)
    built = products.built().numpy().reshape(len(kinds), -1)
    matrix = (scale * rng.standard_normal([len(kinds), 40])).astype(np.float32)
    (block,) = Codebook(size=20, seed=1).blocks(40 + built.shape[1])
    given = [tf.constant(matrix), products]
    parts = encode_rows([block])(given)
    encoded = np.concatenate(
        [part.numpy().reshape(len(kinds), -1) for part in parts], 1
    )
    assert_dominated(encoded, full_vectors(block))
    assert_shrunk(encoded, np.concatenate([matrix, built], axis=1))
    sums = encode_rows([block], summed=True)(given)
    for total, part in zip(sums, parts, strict=True):
        np.testing.assert_allclose(total, part.numpy().sum(0), rtol=1e-5, atol=1e-7)


def test_products_are_encoded_as_if_they_were_built():
    rng = np.random.default_rng(5)
    products = outer_rows(rng, ["normal"] * 8, 60, 50)
    (block,) = Codebook(size=20).blocks(3000)
    apart = encode_rows([block])([products])[0].numpy().reshape(8, -1)
    built = products.built().numpy().reshape(8, -1)
    exact = encode(built, [block], "exact")
    difference = np.linalg.norm(apart - exact, axis=1) / np.linalg.norm(exact, axis=1)
    assert difference.max() < 0.03


def test_a_product_does_not_see_the_other_rows():
    rng = np.random.default_rng(6)
    products = outer_rows(rng, sorted(FACTORS))
    (block,) = Codebook(size=20).blocks(23 * 31)
    encoded = encode_rows([block])([products])[0].numpy()
    for number in range(len(FACTORS)):
        alone = OuterRows(*(part[number : number + 1] for part in products))
        (row,) = encode_rows([block])([alone])[0].numpy()
        np.testing.assert_array_equal(row, encoded[number])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_products_that_are_not_finite_become_zero(bad, side):
    parts = [
        part.numpy() for part in outer_rows(np.random.default_rng(0), ["normal"] * 3)
    ]
    parts[side][1, 4] = bad
    (block,) = Codebook(size=20).blocks(23 * 31)
    (encoded,) = encode_rows([block])([OuterRows(*map(tf.constant, parts))])
    assert np.isfinite(encoded).all()
    assert (
        not encoded.numpy()[1].any() and encoded.numpy()[[0, 2]].any(axis=(1, 2)).all()
    )
