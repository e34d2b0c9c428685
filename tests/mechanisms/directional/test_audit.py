"""Attacks on directional noise: the proven form holds, the printed one does not."""

import pytest

import keras_dp_ext as dp


@pytest.mark.parametrize(
    "arguments",
    [{"direction": "gradient"}, {"direction": "uniform", "pruning_ratio": 0.5}],
)
def test_no_attack_exceeds_the_proven_epsilon_over_several_steps(arguments):
    """Several steps: the axes of the later ones follow from the earlier ones."""
    audit = dp.audit.audit_mechanism(
        dp.mechanisms.Directional(noise_multiplier=1.0, **arguments),
        shapes=[(16,)],
        runs=20_000,
        steps=3,
    )
    assert 0 < audit.epsilon <= audit.proven_epsilon


def test_the_printed_mechanism_is_refuted():
    budget = dp.analysis.published_budget(1.0, 1e-5, 55_000, lot_size=512, epochs=60)
    audit = dp.audit.audit_mechanism(
        dp.mechanisms.Directional(guarantee="published", published_budget=budget),
        shapes=[(2000,)],
        runs=4_000,
    )
    assert audit.epsilon > 2 * audit.published_epsilon
