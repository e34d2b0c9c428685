"""`keras-dp audit`: attacks every mechanism, and compares with what it claims."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from keras_dp_ext._own_code import is_own
from keras_dp_ext.cli._quiet import import_tensorflow
from keras_dp_ext.cli._training import (
    _MECHANISMS,
    _NOISES,
    INDEPENDENT,
    add_mechanism_argument,
    plain,
)

# The published direction needs a full-batch gradient before every release.
_ONE_RELEASE = ", one release"

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
    add_mechanism_argument(
        parser,
        action="append",
        default=None,
        help=f"{', '.join(_MECHANISMS)}, or module:Class; may be repeated. Default: "
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
    audited = [
        (label, mechanism)
        for label, mechanism in _mechanisms(arguments)
        if arguments.guarantee in (None, getattr(mechanism, "guarantee", "proven"))
    ]
    if not audited:
        raise ValueError(
            "Argument `--guarantee published` applies to `--mechanism` tanh, "
            "directional: what others publish is proven. "
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
        audit = audit_mechanism(
            mechanism,
            [(arguments.parameters,)],
            delta=arguments.delta,
            runs=arguments.runs,
            steps=1 if _ONE_RELEASE in label else arguments.steps,
            sampling_rate=1.0 if _ONE_RELEASE in label else arguments.sampling_rate,
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


def _mechanisms(arguments: argparse.Namespace) -> Iterator[tuple[str, object]]:
    """What is audited, each under the name that it has in the table."""
    from keras_dp_ext import noise
    from keras_dp_ext.analysis import PublishedBudget
    from keras_dp_ext.mechanisms import describe
    from keras_dp_ext.mechanisms.directional import Directional
    from keras_dp_ext.mechanisms.dpsgd import DPSGD
    from keras_dp_ext.mechanisms.encoding import Encoded
    from keras_dp_ext.mechanisms.quantile import Quantile
    from keras_dp_ext.mechanisms.tanh import Tanh

    chosen = arguments.mechanism or INDEPENDENT
    sigma = arguments.noise_multiplier
    for name in filter(is_own, chosen):
        own = describe.mechanism_class(name)
        yield name, own(**own.arguments_at(sigma))
    for name in ("bandmf", "dpftrl", "blt"):
        if name in chosen:
            yield f"{name}, one run", describe.mechanism(name, noise_multiplier=sigma)
    if "dpsgd" in chosen:
        yield "dpsgd", DPSGD(noise_multiplier=sigma)
    if "quantile" in chosen:
        yield "quantile", Quantile(noise_multiplier=sigma, count_noise=0.8)
    if "encoding" in chosen:
        for name in _NOISES:
            scaled = noise.get(name).with_scale(sigma)
            yield f"encoding, {name}", Encoded(noise=scaled)
    if "tanh" in chosen:
        yield "tanh", Tanh(noise_multiplier=sigma)
        yield "tanh, as published", Tanh(noise_multiplier=sigma, guarantee="published")
    if "directional" in chosen:
        yield "directional", Directional(noise_multiplier=sigma)
        # One release of the whole data set, planned for an epsilon of 1.
        budget = PublishedBudget(
            epsilon=1.0, delta=arguments.delta, sampling_rate=1.0, steps=1
        )
        one = arguments.steps == 1 and arguments.sampling_rate == 1
        yield (
            "directional, as published" + ("" if one else _ONE_RELEASE),
            Directional(guarantee="published", published_budget=budget),
        )
