"""The arguments that describe a training, shared by `epsilon` and `calibrate`."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import re
from typing import TYPE_CHECKING, Any

from keras_dp_ext._names import SAMPLINGS
from keras_dp_ext.cli._arguments import (
    add_delta_and_accountant,
    add_mechanism,
    add_noise,
    add_noise_multiplier,
    count,
    number,
    option_name,
    positive_int,
)
from keras_dp_ext.cli._mechanisms import ALL_OPTIONS, DEFAULT_BANDS, options_of

if TYPE_CHECKING:
    from keras_dp_ext.accounting import Claim, Sampling, TrainingPlan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of mechanism, data and accountant."""
    _add_mechanism(parser.add_argument_group("mechanism"))
    _add_encoding(parser.add_argument_group("encoding"))
    _add_published(parser.add_argument_group("published tanh and directional"))
    _add_correlated(parser.add_argument_group("correlated noise"))
    _add_data(parser.add_argument_group("data"))
    add_delta_and_accountant(parser.add_argument_group("accountant"), "num_examples")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_mechanism(mechanism: Any) -> None:
    add_mechanism(mechanism)
    add_noise_multiplier(mechanism, " (all but encoding)")
    mechanism.add_argument(
        "--guarantee",
        choices=("proven", "published"),
        default="proven",
        help="tanh, directional: with a bound that is proven, or as printed",
    )
    mechanism.add_argument(
        "--parameters",
        type=positive_int,
        metavar="N",
        help="trainable parameters of the model (encoding, published tanh)",
    )
    mechanism.add_argument(
        "--num-microbatches",
        type=positive_int,
        metavar="N",
        help="default: one for each example. Fewer double the sensitivity",
    )


def _add_encoding(encoding: Any) -> None:
    add_noise(encoding)
    encoding.add_argument(
        "--scale",
        type=number,
        help="scale of the noise; of gaussian the standard deviation. Default: 1",
    )
    encoding.add_argument(
        "--df", type=number, help="degrees of freedom of student-t. Default: 9"
    )
    encoding.add_argument(
        "--codebook-size", type=positive_int, help="number of vectors. Default: 1000"
    )


def _add_published(published: Any) -> None:
    published.add_argument(
        "--output-range", type=number, metavar="C", help="tanh: c. Default: 1"
    )
    published.add_argument(
        "--direction",
        choices=("gradient", "uniform"),
        help="directional: weights w. Default: gradient",
    )
    published.add_argument(
        "--budget-epsilon",
        type=number,
        metavar="EPSILON",
        help="directional: total budget from which the paper derives its noise",
    )
    published.add_argument(
        "--split", type=number, help="directional: share of w. Default: 0.125"
    )


def _add_correlated(correlated: Any) -> None:
    correlated.add_argument(
        "--bands",
        type=positive_int,
        metavar="B",
        help="bandmf, bandinv: releases over which noise is correlated. Default: "
        f"{DEFAULT_BANDS}",
    )
    correlated.add_argument(
        "--restart-every",
        type=positive_int,
        metavar="STEPS",
        help="dpftrl: a new tree after so many releases. Default: one tree",
    )
    correlated.add_argument(
        "--buffers", type=positive_int, metavar="N", help="blt: buffers. Default: 3"
    )


def _add_data(data: Any) -> None:
    data.add_argument("--num-examples", type=positive_int, required=True, metavar="N")
    data.add_argument(
        "--batch-size",
        type=positive_int,
        required=True,
        metavar="N",
        help="(expected) number of examples in one update",
    )
    data.add_argument("--epochs", type=number, help="passes over the data")
    data.add_argument(
        "--steps", type=count, help="number of updates, in place of epochs"
    )
    data.add_argument(
        "--sampling",
        choices=SAMPLINGS,
        help="how batches are drawn. Default: poisson, as dp.data.poisson_batches; "
        "bandmf: cyclic-poisson; dpftrl, blt, bandinv: fixed-order",
    )


@dataclasses.dataclass
class PlannedTraining:
    """A training as the arguments describe it, checked."""

    arguments: argparse.Namespace

    def __post_init__(self) -> None:
        arguments = self.arguments
        self.options = options_of(arguments.mechanism)
        if arguments.sampling is None:
            arguments.sampling = self.options.mechanism_class.default_sampling
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
                cycle=self._cycle(),
            )
        except ValueError as error:
            # The same numbers, by the names that they have here.
            raise ValueError(
                re.sub(r"`(\w+)`", lambda name: f"`{option_name(name[1])}`", str(error))
            ) from None

    def _cycle(self) -> int:
        cyclic = self.arguments.sampling == "cyclic-poisson"
        return self.options.cycle(self.arguments) if cyclic else 1

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
        self._check_options()
        arguments = self.options.arguments(self, scale)
        return self.options.mechanism_class(**arguments)

    def claim(self, scale: float | None = None) -> Claim:
        """What one release claims."""
        parameters = self.arguments.parameters
        if parameters is None:
            if self.options.needs_parameters(self.arguments.guarantee):
                raise ValueError(
                    "Argument `--parameters` is needed: the number of trainable "
                    "parameters (`model.count_params()`)."
                )
            parameters = 1
        return self.mechanism(scale).claim(parameters, self.examples_per_microbatch)

    def noise_multiplier(self, scale: float | None) -> float:
        """The noise to calibrate with, or the one that is given."""
        multiplier = self.arguments.noise_multiplier if scale is None else scale
        if multiplier is None:
            raise ValueError("Argument `--noise-multiplier` is needed.")
        return multiplier

    def _check_options(self) -> None:
        """An argument that is silently ignored would be believed to matter."""
        name = self.options.name
        for option in sorted(ALL_OPTIONS.difference(self.options.options)):
            if getattr(self.arguments, option) is not None:
                raise ValueError(
                    f"Argument `{option_name(option)}` does not apply to "
                    f"`--mechanism {name}`."
                )
        published = self.arguments.guarantee == "published"
        if published and not self.options.has_published_form:
            raise ValueError(
                "Argument `--guarantee published` does not apply to "
                f"`--mechanism {name}`: what is published is proven."
            )
