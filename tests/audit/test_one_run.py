"""The theorem behind the one-run audit, against brute force."""

import itertools

import numpy as np
import pytest
from scipy import optimize, stats

from keras_dp_ext.audit.audit_training import guess_canaries
from keras_dp_ext.audit.one_run import one_run_epsilon, one_run_p_value


def most_likely_success(canaries, correct, epsilon, delta):
    """The greatest P[W >= v] of any (epsilon, delta)-DP algorithm, by brute force.

    A linear program over all algorithms that see which canaries are in and answer
    with a guess for each of them: privacy is one inequality for every pair of
    neighbours and every set of answers.
    """
    inputs = list(itertools.product([0, 1], repeat=canaries))
    size = len(inputs)
    wins = np.array(
        [
            [sum(a == b for a, b in zip(s, t, strict=True)) for t in inputs]
            for s in inputs
        ]
    )
    objective = -(wins >= correct).astype(float).ravel() / size
    events = np.array(list(itertools.product([0, 1], repeat=size)), float)
    rows = []
    for a, b in itertools.permutations(range(size), 2):
        if sum(x != y for x, y in zip(inputs[a], inputs[b], strict=True)) == 1:
            block = np.zeros([len(events), size, size])
            block[:, a] = events
            block[:, b] = -np.exp(epsilon) * events
            rows.append(block.reshape([len(events), -1]))
    constraints = np.concatenate(rows)
    solution = optimize.linprog(
        objective,
        A_ub=constraints,
        b_ub=np.full(len(constraints), delta),
        A_eq=np.kron(np.eye(size), np.ones([1, size])),
        b_eq=np.ones(size),
    )
    assert solution.success
    return -solution.fun


@pytest.mark.parametrize("correct", [1, 2, 3])
@pytest.mark.parametrize(
    "epsilon, delta", [(0.5, 0.0), (1.0, 0.01), (1.0, 0.05), (0.2, 0.2), (2.0, 0.01)]
)
def test_no_algorithm_beats_the_bound(correct, epsilon, delta):
    attained = most_likely_success(3, correct, epsilon, delta)
    bound = one_run_p_value(3, 3, correct, epsilon, delta)
    assert attained <= bound + 1e-9
    if delta == 0:
        # Randomised response attains it.
        assert attained == pytest.approx(bound)


def test_the_printed_bound_is_beaten_by_an_algorithm():
    """Steinke et al., Theorem 5.2, as printed and as in their Appendix D."""
    canaries, correct, epsilon, delta = 3, 1, 1.0, 0.05
    binomial = stats.binom(canaries, 1 / (1 + np.exp(-epsilon)))
    slope = max(
        (binomial.sf(correct - i - 1) - binomial.sf(correct - 1)) / i
        for i in range(1, canaries + 1)
    )
    printed = binomial.sf(correct - 1) + 2 * canaries * delta * slope
    attained = most_likely_success(canaries, correct, epsilon, delta)
    assert printed == pytest.approx(0.9864, abs=1e-4)
    assert attained == pytest.approx(0.9986, abs=1e-4)


def test_without_delta_the_bound_is_the_binomial_tail():
    for epsilon in (0.0, 0.7, 3.0):
        success = np.exp(epsilon) / (1 + np.exp(epsilon))
        assert one_run_p_value(50, 20, 15, epsilon, 0.0) == pytest.approx(
            sum(stats.binom.pmf(k, 20, success) for k in range(15, 21))
        )


def test_epsilon_is_where_the_p_value_crosses_the_error():
    epsilon = one_run_epsilon(1000, 200, 170, delta=1e-5, error=0.05)
    assert one_run_p_value(1000, 200, 170, epsilon - 1e-3, 1e-5) < 0.05
    assert one_run_p_value(1000, 200, 170, epsilon + 1e-3, 1e-5) > 0.05
    assert epsilon < np.log(170 / 30)


def test_guessing_by_chance_shows_nothing():
    assert one_run_epsilon(1000, 1000, 510, delta=1e-5, error=0.05) == 0
    assert one_run_epsilon(100, 10, 0, delta=0.0, error=0.05) == 0


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomised_response_is_never_found_above_its_epsilon(epsilon):
    """Many audits of a mechanism whose epsilon is exact, with all strategies."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(200):
        included = rng.random(400) < 0.5
        truthful = rng.random(400) < 1 / (1 + np.exp(-epsilon))
        scores = np.where(truthful, included, ~included).astype(float)
        found.append(guess_canaries(scores, included, 0.0, 0.1, random=rng)[0])
    above = np.sum(np.array(found) > epsilon)
    assert stats.binom.sf(above - 1, 200, 0.1) > 1e-4
    assert np.median(found) > 0.45 * epsilon


def test_more_guesses_than_canaries_are_refused():
    with pytest.raises(ValueError, match="Argument `correct`"):
        one_run_p_value(10, 11, 5, 1.0, 0.0)
    with pytest.raises(ValueError, match="Argument `guesses`"):
        guess_canaries(np.zeros(5), np.ones(5, bool), 0.0, 0.1, guesses=6)
