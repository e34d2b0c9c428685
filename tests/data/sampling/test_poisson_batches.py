"""Poisson lots are what the analysis assumes: independent coins, one slot each."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from keras_dp_ext.data import poisson_batches
from tests.numpy_batches import numpy_batches

NUM_EXAMPLES = 40
BATCH_SIZE = 10
RATE = BATCH_SIZE / NUM_EXAMPLES
LOTS = 10_000


def rows_of(lots: tf.data.Dataset) -> list[np.ndarray]:
    """Which examples each batch holds (x is the example's own number)."""
    return [x[weight > 0] for x, _, weight in numpy_batches(lots)]


def numbered(num_examples: int = NUM_EXAMPLES) -> np.ndarray:
    return np.arange(num_examples, dtype=np.int32)


@pytest.fixture(scope="module")
def draws() -> np.ndarray:
    """`[LOTS, capacity]` example numbers, -1 where a slot is padding."""
    lots = poisson_batches(
        numbered(), batch_size=BATCH_SIZE, steps_per_epoch=LOTS, seed=1
    )
    return np.stack(
        [np.where(weight > 0, x, -1) for x, _, weight in numpy_batches(lots)]
    )


@pytest.fixture(scope="module")
def inclusions(draws: np.ndarray) -> np.ndarray:
    """`[LOTS, NUM_EXAMPLES]` booleans: who took part in which lot."""
    return (draws[:, :, None] == numbered()).any(axis=1)


def assert_plausible(statistic: float, degrees_of_freedom: float) -> None:
    """Neither too bad nor too good to be a chi-square variable."""
    tail = stats.chi2.sf(statistic, degrees_of_freedom)
    assert 1e-4 < tail < 1 - 1e-4


def test_every_example_is_drawn_with_the_same_probability(inclusions):
    expected = LOTS * RATE
    deviation = inclusions.sum(axis=0) - expected
    assert_plausible(np.sum(deviation**2) / (expected * (1 - RATE)), NUM_EXAMPLES)


def test_examples_are_drawn_independently_of_each_other(inclusions):
    centred = (inclusions - RATE) / np.sqrt(RATE * (1 - RATE))
    correlation = centred.T @ centred / np.sqrt(LOTS)
    pairs = correlation[np.triu_indices(NUM_EXAMPLES, k=1)]
    # Pairwise products of independent coins are uncorrelated, of variance 1.
    assert_plausible(np.sum(pairs**2), len(pairs))


def test_lots_are_drawn_independently_of_earlier_lots(inclusions):
    centred = (inclusions - RATE) / np.sqrt(RATE * (1 - RATE))
    lagged = np.sum(centred[1:] * centred[:-1], axis=0) / np.sqrt(LOTS - 1)
    assert_plausible(np.sum(lagged**2), NUM_EXAMPLES)


def test_lot_size_is_binomial(inclusions):
    sizes = np.bincount(inclusions.sum(axis=1), minlength=NUM_EXAMPLES + 1)
    expected = LOTS * stats.binom.pmf(np.arange(NUM_EXAMPLES + 1), NUM_EXAMPLES, RATE)
    usual = expected > 5
    statistic = np.sum((sizes[usual] - expected[usual]) ** 2 / expected[usual])
    assert_plausible(statistic, usual.sum() - 1)


def test_no_example_occurs_twice_in_a_lot(draws):
    for lot in draws[:2000]:
        drawn = lot[lot >= 0]
        assert len(np.unique(drawn)) == len(drawn)


def test_every_slot_is_equally_likely_for_every_example(draws):
    slots = [np.nonzero(draws == example)[1] for example in (0, 17, 39)]
    for taken in slots:
        counts = np.bincount(taken, minlength=draws.shape[1])
        assert_plausible(
            np.sum((counts - counts.mean()) ** 2) / counts.mean(), len(counts) - 1
        )


def test_a_neighbour_does_not_move_the_others_between_microbatches(draws):
    """Whether 3 and 4 share a microbatch of 4 does not depend on 5 taking part."""
    group = {example: -np.ones(LOTS) for example in (3, 4, 5)}
    for example, groups in group.items():
        lot, slot = np.nonzero(draws == example)
        groups[lot] = slot // 4
    both = (group[3] >= 0) & (group[4] >= 0)
    together = both & (group[3] == group[4])
    with_five = group[5] >= 0
    table = [
        [np.sum(together & with_five), np.sum(together & ~with_five)],
        [np.sum(both & ~together & with_five), np.sum(both & ~together & ~with_five)],
    ]
    assert stats.chi2_contingency(table).pvalue > 1e-4
    # 3 of the other capacity-1 slots are in the same microbatch.
    share = together.sum() / both.sum()
    expected = 3 / (draws.shape[1] - 1)
    assert abs(share - expected) < 5 * np.sqrt(expected / both.sum())


def test_epochs_differ_and_a_seed_repeats_them():
    first, second = (
        poisson_batches(numbered(), batch_size=10, seed=5) for _ in range(2)
    )
    epochs = [np.concatenate(rows_of(first)).tolist() for _ in range(3)]
    again = [np.concatenate(rows_of(second)).tolist() for _ in range(3)]
    assert epochs == again
    assert all(a != b for a, b in itertools.combinations(epochs, 2))


def test_sampling_ignores_the_global_seeds():
    def draw() -> list:
        tf.keras.utils.set_random_seed(0)
        return np.concatenate(
            rows_of(poisson_batches(numbered(1000), batch_size=100))
        ).tolist()

    assert draw() != draw()


def test_padding_is_zero_in_every_leaf_and_has_weight_zero():
    lots = poisson_batches(
        {"a": np.ones([30, 2], np.float32), "b": np.full([30], b"word")},
        np.ones([30], np.int64),
        batch_size=3,
    )
    for x, y, weight in numpy_batches(lots):
        padding = weight == 0
        assert padding.any()
        assert np.all(x["a"][padding] == 0) and np.all(x["a"][~padding] == 1)
        assert np.all(x["b"][padding] == b"") and np.all(x["b"][~padding] == b"word")
        assert np.all(y == ~padding)


def test_user_weights_multiply_the_mask():
    weights = np.linspace(0.5, 2.0, NUM_EXAMPLES).astype(np.float32)
    lots = poisson_batches(numbered(), batch_size=10, sample_weight=weights)
    for x, _, weight in numpy_batches(lots):
        real = weight > 0
        np.testing.assert_array_equal(weight[real], weights[x[real]])


def test_a_lot_is_spread_over_accumulation_steps():
    lots = poisson_batches(
        numbered(), batch_size=10, accumulation_steps=4, steps_per_epoch=50, seed=0
    )
    batches = rows_of(lots)
    assert len(batches) == len(lots) == 200
    assert {x.shape[0] for x, _, _ in lots} == {8}
    # Four batches are one lot: nobody occurs twice in it, and its size is random.
    grouped = [np.concatenate(batches[i : i + 4]) for i in range(0, 200, 4)]
    assert all(len(np.unique(lot)) == len(lot) for lot in grouped)
    assert len({len(lot) for lot in grouped}) > 3
    assert lots.dp_sampling.accumulation_steps == 4
    assert lots.dp_sampling.steps_per_epoch == 50


@pytest.mark.parametrize("as_tuple", [False, True])
def test_a_tf_dataset_is_sampled_like_arrays(as_tuple):
    x, y = numbered(), numbered() * 2
    source = tf.data.Dataset.from_tensor_slices((x, y) if as_tuple else x)
    expected = poisson_batches(x, y if as_tuple else None, batch_size=8, seed=3)
    actual = poisson_batches(source, batch_size=8, seed=3)
    for a, b in zip(numpy_batches(actual), numpy_batches(expected), strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        if as_tuple:
            np.testing.assert_array_equal(a[1], b[1])


def test_the_whole_data_set_can_be_one_lot():
    lots = poisson_batches(numbered(), batch_size=NUM_EXAMPLES)
    (rows,) = rows_of(lots)
    assert sorted(rows) == list(range(NUM_EXAMPLES))
    assert lots.dp_sampling.sampling.rate == 1.0
    assert lots.dp_sampling.sampling.overflow_delta == 0.0


def test_an_empty_lot_is_a_batch_of_padding():
    lots = poisson_batches(numbered(50), batch_size=1, steps_per_epoch=100, seed=0)
    batches = list(lots)
    assert len(batches) == 100
    assert min(float(tf.reduce_sum(weight)) for _, _, weight in batches) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be a positive integer"),
        ({"batch_size": 2.5}, "`batch_size` must be a positive integer"),
        ({"batch_size": 41}, "at most the number of examples"),
        ({"batch_size": 10, "y": np.zeros(3)}, "same number of examples"),
        ({"batch_size": 10, "physical_batch_size": 12}, "at least 3[0-9]"),
        ({"batch_size": 10, "accumulation_steps": 0}, "`accumulation_steps`"),
        ({"batch_size": 10, "steps_per_epoch": -1}, "`steps_per_epoch`"),
        ({"batch_size": 10, "sample_weight": np.ones([40, 2])}, "one weight per"),
        ({"batch_size": 10, "max_overflow_delta": 0.0}, "`max_overflow_delta`"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        poisson_batches(numbered(), **arguments)


def test_data_of_unknown_size_is_refused():
    source = tf.data.Dataset.from_tensor_slices(numbered())
    for dataset in (source.filter(lambda x: x > 3), source.repeat()):
        with pytest.raises(ValueError, match="known, finite size"):
            poisson_batches(dataset, batch_size=4)
    with pytest.raises(ValueError, match="at least one example"):
        poisson_batches(np.zeros([0, 3]), batch_size=1)
    with pytest.raises(ValueError, match="at least one example"):
        poisson_batches(source.take(0), batch_size=1)


def test_keras_does_not_advise_to_shuffle_lots(recwarn):
    lots = poisson_batches(numbered()[:, None], numbered(), batch_size=BATCH_SIZE)
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(lots, verbose=0)
    assert not [w for w in recwarn if "shuffle" in str(w.message)]
