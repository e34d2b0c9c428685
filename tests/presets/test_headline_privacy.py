"""The recipes of the headline under attack: what one example does to their releases."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event, pld

import keras_dp_ext as dp
from keras_dp_ext.cli._experiment import Experiment
from keras_dp_ext.cli._settings import Settings
from keras_dp_ext.data import DataSet
from keras_dp_ext.data.layers.privately_adapted import PrivatelyAdapted

EXAMPLES = 48
DELTA = 1e-3

# The last example of each: of features in half precision, of floats, of words.
HEADLINE = {
    "mnist": ([7], np.float16, [65504.0, -65504.0, 0.0]),
    "cifar10": ([2, 2, 5], np.float16, [65504.0, 6e-8]),
    "adult": ([9], np.float32, [3e38, -1e30, 100.0]),
    "imdb": ([20], np.int32, [0, 9_999]),
}


def data_set(name: str, canary: float) -> DataSet:
    """Examples like those of a data set, the last of them made by an attacker."""
    shape, dtype, _ = HEADLINE[name]
    generator = np.random.default_rng(0)
    x = generator.random([EXAMPLES, *shape])
    x = (x * (9_999 if dtype is np.int32 else 1)).astype(dtype)
    # More of one class, so that the gradients of all do not cancel out.
    y = (np.arange(EXAMPLES) % 4 > 0).astype(int)
    x[-1], y[-1] = canary, 0
    return DataSet(name, x, y, x[:4], y[:4], 10 if name in ("mnist", "cifar10") else 2)


def experiment_of(name: str, canary: float, **privacy) -> Experiment:
    asked = Settings(
        dataset=name, delta=DELTA, batch_size=EXAMPLES, epochs=2, seed=0, **privacy
    )
    return Experiment(asked, data_set(name, canary))


def released_sum(
    experiment: Experiment, canary: float, weight_of_canary: float
) -> np.ndarray:
    """What one update adds up, without noise: all examples are in the lot."""
    data, model = data_set(experiment.data.name, canary), experiment.model
    weights = np.ones(EXAMPLES, np.float32)
    weights[-1] = weight_of_canary
    lots = dp.data.poisson_batches(
        data.x_train,
        data.y_train.astype(np.int32),
        sample_weight=weights,
        batch_size=EXAMPLES,
    )
    before = [variable.numpy() for variable in model.trainable_variables]
    for momentum in model.optimizer.momentums:
        momentum.assign(np.zeros(momentum.shape))
    rate = float(model.optimizer.learning_rate)
    model.fit(lots, epochs=1, shuffle=False, verbose=0)
    steps = [momentum.numpy().ravel() for momentum in model.optimizer.momentums]
    for variable, value in zip(model.trainable_variables, before, strict=True):
        variable.assign(value)
    return -np.concatenate(steps) * EXAMPLES / rate


@pytest.mark.parametrize("name", sorted(HEADLINE))
def test_no_example_moves_an_update_by_more_than_the_clip(name):
    """Normalisation has seen the first canary, and must not become useless by it."""
    canaries = HEADLINE[name][-1]
    experiment = experiment_of(name, canaries[0], noise_multiplier=0.0)
    assert all(np.isfinite(w).all() for w in experiment.model.get_weights())
    clip = experiment.model.optimizer.mechanism.l2_norm_clip
    moved = []
    for canary in canaries:
        joined = released_sum(experiment, canary, 1.0)
        without = released_sum(experiment, canary, 0.0)
        assert np.isfinite(joined).all() and np.linalg.norm(without) > clip
        moved.append(np.linalg.norm(joined - without) / clip)
    assert max(moved) <= 1 + 1e-3
    # Else the attack is none. The bias alone moves by sqrt(1/2), however private noise
    # has scaled the features, so that a doubled clip would be seen.
    assert max(moved) > 0.7


def test_epsilon_covers_the_normalisation_and_dp_accounting_agrees():
    experiment = experiment_of("adult", 1.0, target_epsilon=3.0, accountant="pld")
    (layer,) = [
        one for one in experiment.model.layers if isinstance(one, PrivatelyAdapted)
    ]
    assert layer.releases == 1
    experiment.fit(verbose=0)
    mechanism = experiment.model.optimizer.mechanism
    independent = pld.PLDAccountant()
    # The lot is the whole data set: no sampling, and no slot is missing.
    independent.compose(dp_event.GaussianDpEvent(mechanism.noise_multiplier), 2)
    independent.compose(dp_event.GaussianDpEvent(layer.noise_multiplier))
    epsilon = independent.get_epsilon(DELTA)
    assert 2.9 < epsilon <= 3.0
    assert dp.accounting.epsilon_of(experiment.model, DELTA, "pld") == pytest.approx(
        epsilon, abs=2e-3
    )
    # Without the normalisation it would be less: the ledger has it.
    alone = math.sqrt(2) / mechanism.noise_multiplier
    both = math.hypot(alone, 1 / layer.noise_multiplier)
    assert both > alone * 1.001
