"""`keras-dp audit`: attacks every mechanism, and compares with what it claims."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from keras_dp_ext._names import INDEPENDENT_MECHANISMS
from keras_dp_ext.cli._arguments import MECHANISM_NAMES, add_mechanism
from keras_dp_ext.cli._figures import plain
from keras_dp_ext.cli._mechanisms import WITH_PUBLISHED_FORM, options_of
from keras_dp_ext.cli._quiet import import_tensorflow

if TYPE_CHECKING:
    from keras_dp_ext.mechanisms.base import Mechanism

_DESCRIPTION = """Attacks every mechanism, and compares with what it claims.

Each mechanism's own code runs many times on two batches that differ in one
example; how well the two can be told apart bounds epsilon from below. A bound
above a claimed epsilon refutes the claim.
"""

_EXAMPLES = """examples:
  keras-dp audit
  keras-dp audit --mechanism tanh --guarantee published
  keras-dp audit --mechanism dpsgd --runs 1000000 --noise-multiplier 1
  keras-dp audit --mechanism encoding --steps 4 --sampling-rate 0.1
  keras-dp audit --mechanism dpftrl --steps 8
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "audit",
        help="measured lower bounds on epsilon",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_mechanism(
        parser,
        action="append",
        default=None,
        help=f"{MECHANISM_NAMES}, or module:Class; may be repeated. Default: "
        "all of ours with independent noise, proven and as published",
    )
    parser.add_argument(
        "--guarantee",
        choices=("proven", "published"),
        help="only what is proven, or only what runs as printed (tanh, directional). "
        "Default: both",
    )
    parser.add_argument(
        "--runs", type=int, default=100_000, help="of each batch. Default: 100000"
    )
    parser.add_argument("--delta", type=float, default=1e-5, help="default: 1e-5")
    parser.add_argument(
        "--noise-multiplier",
        type=float,
        default=1.0,
        metavar="SIGMA",
        help="noise over sensitivity; for encoding the scale of the noise. Default: 1",
    )
    parser.add_argument(
        "--parameters", type=int, default=64, help="of the audited model. Default: 64"
    )
    parser.add_argument(
        "--steps", type=int, default=1, help="releases to compose. Default: 1"
    )
    parser.add_argument(
        "--sampling-rate", type=float, default=1.0, metavar="Q", help="default: 1"
    )
    parser.add_argument(
        "--confidence",
        type=float,
        default=0.999,
        help="that all bounds of the table hold, jointly. Default: 0.999",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints one line for each mechanism; the status is 1 if a proof is refuted."""
    if arguments.parameters < 1:
        raise ValueError(
            "Argument `--parameters` must be positive. "
            f"Received: {arguments.parameters}"
        )
    import_tensorflow()
    from keras_dp_ext.audit import audit_mechanism
    from keras_dp_ext.audit.confidence import confidence_of_each

    results = []
    audited = list(_mechanisms(arguments))
    if not audited:
        raise ValueError(
            "Argument `--guarantee published` applies to `--mechanism` "
            f"{', '.join(WITH_PUBLISHED_FORM)}: what others publish is proven. "
            f"Received: {', '.join(arguments.mechanism)}"
        )
    confidence = confidence_of_each(arguments.confidence, len(audited))
    if not arguments.json:
        together = f" for all {len(audited)} together" if len(audited) > 1 else ""
        print(
            f"delta {arguments.delta:g}, confidence {arguments.confidence:g}"
            f"{together}, {arguments.runs} runs with and without the example\n\n"
            f"{'mechanism':40}{'published':>11}{'proven':>11}{'measured >=':>13}"
            "  verdict"
        )
    for label, mechanism in audited:
        steps, rate = arguments.steps, arguments.sampling_rate
        # A direction needs the gradient of the whole data set before every release.
        if (steps, rate) != (1, 1.0) and mechanism.needs_direction:
            label, steps, rate = f"{label}, one release", 1, 1.0
        audit = audit_mechanism(
            mechanism,
            [(arguments.parameters,)],
            delta=arguments.delta,
            runs=arguments.runs,
            steps=steps,
            sampling_rate=rate,
            confidence=confidence,
            seed=arguments.seed,
        )
        results.append(
            {
                **audit.summary(),
                "mechanism": label,
                "joint_confidence": arguments.confidence,
            }
        )
        if not arguments.json:
            print(
                f"{label:40}{audit.published_epsilon:11.4g}"
                f"{audit.proven_epsilon:11.4g}{audit.epsilon:13.4g}  {audit.verdict}",
                flush=True,
            )
    if arguments.json:
        print(json.dumps([{k: plain(v) for k, v in r.items()} for r in results]))
    return 1 if any(result["verdict"] == "REFUTED" for result in results) else 0


def _mechanisms(arguments: argparse.Namespace) -> Iterator[tuple[str, Mechanism]]:
    """What is audited, each under the name that it has in the table."""
    for name in arguments.mechanism or INDEPENDENT_MECHANISMS:
        audits = options_of(name).audits(arguments.noise_multiplier, arguments.delta)
        for label, mechanism in audits:
            if arguments.guarantee in (None, mechanism.guarantee):
                yield label, mechanism
