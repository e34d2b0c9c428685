"""`keras-dp calibrate`: how much noise, or how many steps, an epsilon allows."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from keras_dp_ext.cli._arguments import number, option_name
from keras_dp_ext.cli._figures import plain
from keras_dp_ext.cli._planned_training import PlannedTraining, add_arguments

if TYPE_CHECKING:
    from keras_dp_ext.accounting.events import Event

_EXAMPLES = """examples:
  how much noise for 60 epochs:
    keras-dp calibrate --target-epsilon 3 --num-examples 60000 --batch-size 256 \\
        --epochs 60
  how many steps at this noise:
    keras-dp calibrate --target-epsilon 3 --num-examples 60000 --batch-size 256 \\
        --noise-multiplier 1.1
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "calibrate",
        help="noise or steps for a target epsilon",
        description="Noise for a target epsilon, if --epochs or --steps is given; "
        "otherwise the number of steps.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target-epsilon", type=number, required=True)
    add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the result of the search, and the epsilon that it gives."""
    from keras_dp_ext.accounting import accountants, calibration
    from keras_dp_ext.accounting.best_attack import rounded_up

    training = PlannedTraining(arguments)
    target, delta, accountant = (
        arguments.target_epsilon,
        training.delta,
        arguments.accountant,
    )

    def epsilon(event: Event, releases: int) -> float:
        return accountants.epsilon(
            [(event, training.sampling, releases)], delta, accountant
        )

    result = {"target_epsilon": target, "delta": delta}
    if training.steps is None:
        event = training.claim().proven
        steps = calibration.calibrate_releases(lambda n: epsilon(event, n), target)
        result |= {"steps": steps, "epochs": steps / training.steps_per_epoch}
        result["epsilon"] = epsilon(event, steps)
    else:
        name = "scale" if arguments.mechanism == "encoding" else "noise_multiplier"
        if getattr(arguments, name) is not None:
            raise ValueError(
                f"Both the noise (`{option_name(name)}`) and the number of steps "
                "are given: leave out what is to be found."
            )
        scale = calibration.calibrate_noise(
            lambda scale: training.claim(scale).proven,
            training.sampling,
            training.steps,
            target,
            delta,
            accountant,
        )
        result |= {name: scale, "steps": training.steps}
        result["epsilon"] = epsilon(training.claim(scale).proven, training.steps)
    result |= {
        "mechanism": arguments.mechanism,
        "guarantee": arguments.guarantee,
        "accountant": accountant,
        "sampling": arguments.sampling,
    }
    if arguments.json:
        print(json.dumps({key: plain(v) for key, v in result.items()}))
    else:
        width = max(map(len, result))
        for key, value in result.items():
            if key in ("noise_multiplier", "scale", "epsilon"):
                value = rounded_up(value, 6)  # Less noise would exceed the budget.
            shown = f"{value:.6g}" if isinstance(value, float) else value
            print(f"{key.replace('_', ' '):{width}}  {shown}")
    return 0
