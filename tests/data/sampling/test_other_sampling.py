"""Sampling with replacement, and shuffling: what their labels promise."""

import numpy as np
import pytest
from scipy import stats

from keras_dp_ext.data import shuffled_batches, with_replacement_batches
from tests.numpy_batches import numpy_batches

X = np.arange(50, dtype=np.int32)


def test_draws_with_replacement_are_uniform_and_independent():
    lots = with_replacement_batches(X, X, 10, steps_per_epoch=2000, seed=0)
    draws = np.stack([x for x, _ in numpy_batches(lots)])
    assert draws.shape == (2000, 10)
    assert stats.chisquare(np.bincount(draws.ravel(), minlength=50)).pvalue > 1e-4
    # Two slots of a lot agree as often as two independent draws: 1 in 50.
    equal = np.sum(draws[:, 0] == draws[:, 1])
    assert stats.binomtest(int(equal), 2000, 1 / 50).pvalue > 1e-4


def test_shuffling_shows_every_example_once_an_epoch():
    lots = shuffled_batches(X, X, 10)
    orders = []
    for _ in range(2):
        rows = [x[weight > 0] for x, _, weight in numpy_batches(lots)]
        orders.append(np.concatenate(rows).tolist())
        assert sorted(orders[-1]) == list(range(50))
    assert orders[0] != orders[1]


@pytest.mark.parametrize("batch_size", [10, 7, 50])
def test_a_shuffled_epoch_has_room_for_one_example_more(batch_size):
    """So that a neighbour fills a padding slot and pushes nobody out."""
    lots = shuffled_batches(X, X, batch_size)
    slots = sum(len(x) for x, _, _ in lots)
    assert slots == len(lots) * batch_size >= len(X) + 1
    assert lots.dp_sampling.sampling.steps_per_epoch == len(lots)


@pytest.mark.parametrize("sampler", [shuffled_batches, with_replacement_batches])
def test_accumulation_splits_a_lot_into_equal_batches(sampler):
    lots = sampler(X, X, 10, accumulation_steps=2)
    label = lots.dp_sampling
    assert {batch[0].shape[0] for batch in lots} == {5}
    assert len(lots) == 2 * label.steps_per_epoch
    with pytest.raises(ValueError, match="multiple of `accumulation_steps`"):
        sampler(X, X, 10, accumulation_steps=3)


@pytest.mark.parametrize("sampler", [shuffled_batches, with_replacement_batches])
def test_seeds_repeat_and_entropy_does_not(sampler):
    def draw(seed):
        return [
            batch[0].tolist() for batch in numpy_batches(sampler(X, X, 10, seed=seed))
        ]

    assert draw(4) == draw(4) != draw(5)
    assert draw(None) != draw(None)
