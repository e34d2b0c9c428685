"""The arguments that describe a training, shared by `epsilon` and `calibrate`."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras_dp_ext._own_code import is_own

if TYPE_CHECKING:
    from keras_dp_ext.accounting import Claim, Sampling, TrainingPlan

#: With noise that is independent from release to release.
INDEPENDENT = ("dpsgd", "quantile", "encoding", "tanh", "directional")
# With correlated noise, and how batches are drawn for it.
_CORRELATED = {
    "bandmf": "cyclic-poisson",
    "dpftrl": "fixed-order",
    "blt": "fixed-order",
}
_MECHANISMS = (*INDEPENDENT, *_CORRELATED)
_NOISES = ("gaussian", "student-t", "laplace", "cauchy", "variance-gamma", "sech")
# Written again, as are the samplings above: to import them takes a second of `--help`.
# A test compares.
_SAMPLINGS = (
    "poisson",
    "shuffled",
    "with-replacement",
    "full-batch",
    "cyclic-poisson",
    "fixed-order",
)
_BANDS = 16


def add_mechanism_argument(group: argparse._ArgumentGroup, **settings: Any) -> None:
    """Adds `--mechanism`: a known name, or `module:Class`."""
    group.add_argument(
        "--mechanism",
        type=mechanism_name,
        metavar="NAME",
        **{
            "default": "dpsgd",
            "help": f"{', '.join(_MECHANISMS)}, or module:Class, a mechanism of your "
            "own. Default: dpsgd",
            **settings,
        },
    )


def mechanism_name(text: str) -> str:
    """The name of a mechanism; one of the user's own is imported later."""
    if text not in _MECHANISMS and not is_own(text):
        raise argparse.ArgumentTypeError(
            f"must be one of {', '.join(_MECHANISMS)}, or module:Class. "
            f"Received: {text}"
        )
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of mechanism, data and accountant."""
    mechanism = parser.add_argument_group("mechanism")
    add_mechanism_argument(mechanism)
    mechanism.add_argument(
        "--noise-multiplier",
        type=_number,
        metavar="SIGMA",
        help="noise over L2 norm of one example (dpsgd, tanh, directional)",
    )
    mechanism.add_argument(
        "--guarantee",
        choices=("proven", "published"),
        default="proven",
        help="tanh, directional: with a bound that is proven, or as printed",
    )
    mechanism.add_argument(
        "--parameters",
        type=_positive_int,
        metavar="N",
        help="trainable parameters of the model (encoding, published tanh)",
    )
    mechanism.add_argument(
        "--num-microbatches",
        type=_positive_int,
        metavar="N",
        help="default: one for each example. Fewer double the sensitivity",
    )
    encoding = parser.add_argument_group("encoding")
    encoding.add_argument("--noise", choices=_NOISES, help="default: student-t")
    encoding.add_argument(
        "--scale",
        type=_number,
        help="scale of the noise; of gaussian the standard deviation. Default: 1",
    )
    encoding.add_argument(
        "--df", type=_number, help="degrees of freedom of student-t. Default: 9"
    )
    encoding.add_argument(
        "--codebook-size", type=_positive_int, help="number of vectors. Default: 1000"
    )
    published = parser.add_argument_group("published tanh and directional")
    published.add_argument(
        "--output-range", type=_number, metavar="C", help="tanh: c. Default: 1"
    )
    published.add_argument(
        "--direction",
        choices=("gradient", "uniform"),
        help="directional: weights w. Default: gradient",
    )
    published.add_argument(
        "--budget-epsilon",
        type=_number,
        metavar="EPSILON",
        help="directional: total budget from which the paper derives its noise",
    )
    published.add_argument(
        "--split", type=_number, help="directional: share of w. Default: 0.125"
    )
    correlated = parser.add_argument_group("correlated noise")
    correlated.add_argument(
        "--bands",
        type=_positive_int,
        metavar="B",
        help=f"bandmf: releases over which noise is correlated. Default: {_BANDS}",
    )
    correlated.add_argument(
        "--restart-every",
        type=_positive_int,
        metavar="STEPS",
        help="dpftrl: a new tree after so many releases. Default: one tree",
    )
    correlated.add_argument(
        "--buffers", type=_positive_int, metavar="N", help="blt: buffers. Default: 3"
    )
    data = parser.add_argument_group("data")
    data.add_argument("--num-examples", type=_positive_int, required=True, metavar="N")
    data.add_argument(
        "--batch-size",
        type=_positive_int,
        required=True,
        metavar="N",
        help="(expected) number of examples in one update",
    )
    data.add_argument("--epochs", type=_number, help="passes over the data")
    data.add_argument(
        "--steps", type=_count, help="number of updates, in place of epochs"
    )
    data.add_argument(
        "--sampling",
        choices=_SAMPLINGS,
        help="how batches are drawn. Default: poisson, as dp.data.poisson_batches; "
        "bandmf: cyclic-poisson; dpftrl, blt: fixed-order",
    )
    accountant = parser.add_argument_group("accountant")
    accountant.add_argument(
        "--delta",
        type=_number,
        help="default: the greatest power of ten below 1 / num_examples",
    )
    accountant.add_argument(
        "--accountant",
        choices=("rdp", "pld"),
        default="rdp",
        help="default: rdp. pld is tighter, for gaussian noise",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


@dataclasses.dataclass
class Training:
    """A training as the arguments describe it, checked."""

    arguments: argparse.Namespace

    def __post_init__(self) -> None:
        arguments = self.arguments
        if arguments.sampling is None:
            arguments.sampling = _CORRELATED.get(arguments.mechanism, "poisson")
        self.plan  # noqa: B018 (checks the numbers)
        if arguments.delta is not None:
            from keras_dp_ext.accounting.default_delta import warn_of_large_delta

            warn_of_large_delta(arguments.delta, arguments.num_examples)

    @property
    def delta(self) -> float:
        from keras_dp_ext.accounting.default_delta import default_delta

        given = self.arguments.delta
        return default_delta(self.arguments.num_examples) if given is None else given

    @functools.cached_property
    def plan(self) -> TrainingPlan:
        from keras_dp_ext.accounting.training_plan import TrainingPlan

        arguments = self.arguments
        try:
            return TrainingPlan(
                arguments.num_examples,
                arguments.batch_size,
                arguments.epochs,
                arguments.steps,
                arguments.sampling,
                cycle=self._cycle,
            )
        except ValueError as error:
            # The same numbers, by the names that they have here.
            raise ValueError(
                re.sub(
                    r"`(\w+)`", lambda n: f"`--{n[1].replace('_', '-')}`", str(error)
                )
            ) from None

    @property
    def _cycle(self) -> int:
        """Groups of cyclic Poisson sampling: as many as the noise has bands."""
        if self.arguments.mechanism != "bandmf":
            return 1
        return self.arguments.bands or _BANDS

    @property
    def steps_per_epoch(self) -> int:
        return self.plan.steps_per_epoch

    @property
    def steps(self) -> int | None:
        return self.plan.releases

    @property
    def sampling(self) -> Sampling:
        return self.plan.scheme

    @property
    def examples_per_microbatch(self) -> int:
        number, batch = self.arguments.num_microbatches, self.arguments.batch_size
        if number is None:
            return 1
        if batch % number:
            raise ValueError(
                "Argument `--num-microbatches` must divide `--batch-size`. "
                f"Received: {number} for {batch}"
            )
        return batch // number

    def mechanism(self, scale: float | None = None) -> Any:
        """The mechanism, with its noise set to `scale` if that is given."""
        from keras_dp_ext.mechanisms import describe

        name = self.arguments.mechanism
        self._check_irrelevant(name)
        if is_own(name):
            own = describe.mechanism_class(name)
            return own(**own.arguments_at(self._noise_multiplier(scale)))
        return describe.mechanism(name, **_PARAMETERS[name](self, scale))

    def claim(self, scale: float | None = None) -> Claim:
        """What one release claims."""
        parameters = self.arguments.parameters
        if parameters is None:
            name = self.arguments.mechanism
            needed = (
                name == "encoding"
                or is_own(name)
                or (name == "tanh" and self.arguments.guarantee == "published")
            )
            if needed:
                raise ValueError(
                    "Argument `--parameters` is needed: the number of trainable "
                    "parameters (`model.count_params()`)."
                )
            parameters = 1
        return self.mechanism(scale).claim(parameters, self.examples_per_microbatch)

    def _check_irrelevant(self, name: str) -> None:
        """An argument that is silently ignored would be believed to matter."""
        relevant = {
            "dpsgd": {"noise_multiplier"},
            "quantile": {"noise_multiplier"},
            "encoding": {"noise", "scale", "df", "codebook_size"},
            "tanh": {"noise_multiplier", "output_range"},
            "directional": {
                "noise_multiplier",
                "direction",
                "budget_epsilon",
                "split",
            },
            "bandmf": {"noise_multiplier", "bands"},
            "dpftrl": {"noise_multiplier", "restart_every"},
            "blt": {"noise_multiplier", "buffers"},
        }
        own = relevant.get(name, {"noise_multiplier"})
        for argument in set().union(*relevant.values()) - own:
            if getattr(self.arguments, argument) is not None:
                raise ValueError(
                    f"Argument `--{argument.replace('_', '-')}` does not apply to "
                    f"`--mechanism {name}`."
                )
        both = name in ("tanh", "directional")
        if self.arguments.guarantee == "published" and not both:
            raise ValueError(
                "Argument `--guarantee published` does not apply to "
                f"`--mechanism {name}`: what is published is proven."
            )

    def _noise_multiplier(self, scale: float | None) -> float:
        multiplier = self.arguments.noise_multiplier if scale is None else scale
        if multiplier is None:
            raise ValueError("Argument `--noise-multiplier` is needed.")
        return multiplier

    def _dpsgd(self, scale: float) -> Any:
        return {"noise_multiplier": self._noise_multiplier(scale)}

    def _bandmf(self, scale: float) -> Any:
        planned = {} if not self.steps else {"steps": self.steps}
        return {**self._dpsgd(scale), "bands": self._cycle, **planned}

    def _dpftrl(self, scale: float) -> Any:
        return {**self._dpsgd(scale), "restart_every": self.arguments.restart_every}

    def _blt(self, scale: float) -> Any:
        planned = {} if not self.steps else {"steps": self.steps}
        return {
            **self._dpsgd(scale),
            **planned,
            "buffers": self.arguments.buffers or 3,
            "separation": self.steps_per_epoch,
        }

    def _encoding(self, scale: float) -> Any:
        from keras_dp_ext import noise as noises
        from keras_dp_ext.bounding.codebook import Codebook

        arguments = self.arguments
        name = arguments.noise or "student-t"
        config: dict[str, Any] = {}
        if arguments.df is not None:
            if name != "student-t":
                raise ValueError("Argument `--df` applies to `--noise student-t` only.")
            config["df"] = arguments.df
        config["scale"] = scale or (1.0 if arguments.scale is None else arguments.scale)
        codebook = Codebook(size=arguments.codebook_size or 1000)
        noise = noises.get({"class_name": name, "config": config})
        return {"codebook": codebook, "noise": noise}

    def _tanh(self, scale: float) -> Any:
        parameters = {
            "noise_multiplier": self._noise_multiplier(scale),
            "guarantee": self.arguments.guarantee,
        }
        if self.arguments.output_range is not None:
            parameters["output_range"] = self.arguments.output_range
        return parameters

    def _directional(self, scale: float) -> Any:
        arguments = self.arguments
        direction = arguments.direction or "gradient"
        if arguments.guarantee == "proven":
            return {
                "noise_multiplier": self._noise_multiplier(scale),
                "direction": direction,
            }
        if scale is not None:
            raise ValueError(
                "Published directional noise follows from its own budget; there is "
                "nothing to calibrate."
            )
        if arguments.budget_epsilon is None or not self.steps:
            raise ValueError(
                "Published directional noise follows from a total budget: pass "
                "`--budget-epsilon`, and `--epochs` or `--steps`."
            )
        return {
            "guarantee": "published",
            "direction": direction,
            "published_budget": {
                "epsilon": arguments.budget_epsilon,
                "delta": self.delta,
                "sampling_rate": arguments.batch_size / arguments.num_examples,
                "steps": self.steps,
                "split": 0.125 if arguments.split is None else arguments.split,
            },
        }


_PARAMETERS: dict[str, Callable] = {
    "dpsgd": Training._dpsgd,
    "quantile": Training._dpsgd,
    "encoding": Training._encoding,
    "tanh": Training._tanh,
    "directional": Training._directional,
    "bandmf": Training._bandmf,
    "dpftrl": Training._dpftrl,
    "blt": Training._blt,
}


def plain(value: Any) -> Any:
    """JSON has no infinity: "inf", which `float` reads."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def figure(value: float) -> str:
    """An epsilon for people: four digits, and words for the extremes."""
    if math.isinf(value):
        return "infinite (no guarantee)"
    return f"{value:.4g}" if value < 1e4 else f"{value:.3g}"


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise argparse.ArgumentTypeError(f"must be a number. Received: {text}")
    return value


def _count(text: str) -> int:
    value = _number(text)
    if value < 0 or value != math.floor(value) or math.isinf(value):
        raise argparse.ArgumentTypeError(
            f"must be an integer, 0 or more. Received: {text}"
        )
    return int(value)


def _positive_int(text: str) -> int:
    value = _count(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"must be at least 1. Received: {text}")
    return value
