"""`keras-dp epsilon`: what a training costs."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras_dp_ext.cli._arguments import number
from keras_dp_ext.cli._figures import figure, plain
from keras_dp_ext.cli._planned_training import PlannedTraining, add_arguments

if TYPE_CHECKING:
    from keras_dp_ext.accounting import BestAttack
    from keras_dp_ext.accounting.accountants import Entry
    from keras_dp_ext.mechanisms.base import Mechanism

_EXAMPLES = """examples:
  keras-dp epsilon --noise-multiplier 1.1 --num-examples 60000 --batch-size 256 \\
      --epochs 60 --delta 1e-5
  keras-dp epsilon --mechanism encoding --noise student-t --df 9 --scale 1.0 \\
      --parameters 26010 --num-examples 60000 --batch-size 256 --epochs 60
  keras-dp epsilon --mechanism tanh --guarantee published --noise-multiplier 1.1 \\
      --parameters 26010 --num-examples 60000 --batch-size 256 --epochs 60
  keras-dp epsilon --mechanism bandmf --bands 16 --noise-multiplier 2.5 \\
      --num-examples 60000 --batch-size 512 --epochs 10
  keras-dp epsilon --noise-multiplier 2 --num-examples 60000 --batch-size 256 \\
      --epochs 60 --tuning-runs 20
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "epsilon",
        help="the epsilon of a training",
        description="The epsilon of a training: proven, and as published.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    parser.add_argument(
        "--conversion",
        choices=("tight", "classic"),
        default="tight",
        help="from RDP to epsilon. Default: tight; classic is that of the papers",
    )
    parser.add_argument(
        "--tuning-runs",
        type=number,
        metavar="MEAN",
        help="also the epsilon of publishing the best of a random number of such "
        "trainings, geometric with this mean",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the figures."""
    from keras_dp_ext.accounting import accountants
    from keras_dp_ext.accounting.best_attack import best_attack
    from keras_dp_ext.accounting.figures import figure_accounting, figure_entries

    training = PlannedTraining(arguments)
    if training.steps is None:
        raise ValueError("Argument `--epochs` or `--steps` is needed.")
    mechanism = training.mechanism()
    claim = training.claim()
    options = {}
    if arguments.accountant == "rdp":
        options["conversion"] = arguments.conversion
    entries = [(claim, training.sampling, training.steps)]

    @functools.cache
    def cost(accountant: str, options: Any, *entries: Entry) -> float:
        return accountants.epsilon(entries, training.delta, accountant, **dict(options))

    def epsilon(figure: str) -> float:
        accountant, own = figure_accounting(
            entries, figure, arguments.accountant, **options
        )
        # Mostly the figures are about the same entries, and PLD takes its time.
        return cost(accountant, tuple(own.items()), *figure_entries(entries, figure))

    proven = epsilon("proven")
    attack = best_attack(figure_entries(entries, "proven"), training.delta, proven)
    result = {
        "epsilon": proven,
        "published_epsilon": _published(mechanism, training, epsilon),
        "delta": training.delta,
        "steps": training.steps,
        "mechanism": arguments.mechanism,
        "guarantee": arguments.guarantee,
        "accountant": arguments.accountant,
        "sampling": arguments.sampling,
        "adjacency": training.sampling.adjacency,
        "best_attack": attack.serialize(),
    }
    if arguments.tuning_runs is not None:
        from keras_dp_ext.accounting.tuning import tuning_epsilon

        result["epsilon_with_tuning"] = tuning_epsilon(
            figure_entries(entries, "proven"), training.delta, arguments.tuning_runs
        )
    if arguments.sampling in ("shuffled", "with-replacement"):
        result["epsilon_if_poisson"] = epsilon("if_poisson")
    if arguments.mechanism == "directional" and arguments.guarantee == "published":
        result |= _directional(training, mechanism.published_budget, options)
    if claim.caveat:
        result["caveat"] = claim.caveat
    if arguments.json:
        print(json.dumps({key: plain(v) for key, v in result.items()}))
    else:
        print(_report(result, training, attack))
    return 0


def _published(
    mechanism: Mechanism, training: Any, epsilon: Callable[[str], float]
) -> float:
    """What the paper would print; some have an accounting of their own."""
    value = mechanism.published_epsilon(training.steps)
    return epsilon("published") if value is None else value


def _directional(training: Any, budget: Any, options: Any) -> dict[str, float]:
    """What the printed noise amounts to; no guarantee, but the order of things.

    Its proven epsilon follows from the least noise of each step, which is known
    only afterwards: a coordinate of `w` may be 0. If `w` is all noise, as it
    nearly is for many parameters, the typical least noise can be told.
    """
    import numpy as np

    from keras_dp_ext.accounting import GaussianRelease, accountants
    from keras_dp_ext.analysis.directional import directional_noise

    def epsilon(multiplier: float) -> float:
        entry = GaussianRelease(multiplier), training.sampling, training.steps
        accountant = training.arguments.accountant
        return accountants.epsilon([entry], training.delta, accountant, **options)

    result = {
        "tau": budget.gradient_tau,
        "isotropic_multiplier": budget.isotropic_multiplier,
        "epsilon_if_isotropic": epsilon(budget.isotropic_multiplier),
    }
    parameters = training.arguments.parameters
    if parameters is not None:
        random = np.random.default_rng(0)
        least = [
            directional_noise(
                random.standard_normal(parameters), budget.gradient_tau
            ).noise_multiplier
            for _ in range(15)
        ]
        result["multiplier_if_w_is_noise"] = float(np.median(least))
        result["epsilon_if_w_is_noise"] = epsilon(float(np.median(least)))
    return result


def _report(result: dict, training: PlannedTraining, attack: BestAttack) -> str:
    from keras_dp_ext.accounting.best_attack import percent, rounded_up

    lines = [
        f"epsilon            {figure(result['epsilon'])}"
        f"   at delta {result['delta']:g}",
    ]
    if result["published_epsilon"] != result["epsilon"]:
        lines.append(
            f"published epsilon  {figure(result['published_epsilon'])}"
            "   (what the paper's own accounting prints)"
        )
    if "epsilon_with_tuning" in result:
        lines.append(
            f"epsilon, tuned     {figure(result['epsilon_with_tuning'])}"
            "   (the best of a random number of runs, by RDP)"
        )
    if "epsilon_if_poisson" in result:
        lines.append(
            f"epsilon if Poisson {figure(result['epsilon_if_poisson'])}"
            "   (had each batch been a Poisson sample)"
        )
    for rate in (0.01, 0.001):
        lines.append(
            f"best attack        {percent(attack.true_positive_rates[rate])} true "
            f"positives at {percent(rate)} false positives, at most"
        )
    lines.append(
        f"mu-GDP             {figure(rounded_up(attack.gdp_mu))}   (up to delta)"
    )
    if attack.computed_from != "pld":
        lines[-1] += ", from epsilon and delta alone"
    lines += [
        "",
        f"mechanism          {result['mechanism']}, {result['guarantee']}",
        f"releases           {result['steps']}",
        f"sampling           {training.sampling.describe()}",
        f"adjacency          {result['adjacency']}",
        f"accountant         {result['accountant']}",
    ]
    for key, text in (
        ("epsilon_if_isotropic", "equal noise with the same tau"),
        ("epsilon_if_w_is_noise", "typical, for a direction that is pure noise"),
    ):
        if key in result:
            lines.append(f"{text}: epsilon {figure(result[key])}")
    if "caveat" in result:
        lines += ["", f"Caveat: {result['caveat']}"]
    return "\n".join(lines)
