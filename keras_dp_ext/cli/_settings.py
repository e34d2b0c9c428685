"""The arguments of `keras-dp train` and `keras-dp compare`, as one value."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
from pathlib import Path
from typing import Any

from keras_dp_ext._data_set_names import NAMES, check_name
from keras_dp_ext.cli._arguments import (
    add_delta_and_accountant,
    add_mechanism,
    add_noise,
    add_noise_multiplier,
    number,
    option_name,
    positive_int,
)

#: Used where neither a target nor a noise is given.
DEFAULT_TARGET_EPSILON = 3.0

#: Used where people are drawn and nothing else is said. A public number: it must not
#: be chosen by looking at how many rows people have.
DEFAULT_ROWS = 8


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a training was asked to do. `None` leaves it to the recipe.

    Attributes:
        dataset: Name for `data.load`, or the path of a `.csv` or `.npz` file.
        data_dir: Directory of `.npz` files.
        cache_dir: Directory in which features of the inputs are kept.
        model: Name of a preset model, or `module:function`.
        mechanism: Name of the mechanism.
        noise: Name of the noise, for encoding.
        optimizer: Name of the Keras optimizer class.
        target_epsilon: Budget to which the noise is calibrated.
        noise_multiplier: Noise over the L2 norm of one example, in place of a target.
        delta: Target delta.
        accountant: "rdp" or "pld".
        epochs: Passes over the data.
        batch_size: Expected examples in a lot.
        accumulation_steps: Batches over which a lot is spread, to save memory.
        learning_rate: Learning rate.
        l2_norm_clip: L2 norm to which one example is bounded.
        pca_noise_multiplier: Noise of a `PrivatePCA` layer in the model.
        options: Further arguments of the mechanism.
        seed: Of the initial weights. Lots and noise never depend on it.
        target: Column to predict, of a `.csv` file.
        user_column: Column of a `.csv` file that tells to whom a row belongs.
        examples_per_user: The most rows of one person in a lot.
    """

    dataset: str = "digits"
    data_dir: str | None = None
    cache_dir: str | None = None
    model: str | None = None
    mechanism: str = "dpsgd"
    noise: str | None = None
    optimizer: str | None = None
    target_epsilon: float | None = None
    noise_multiplier: float | None = None
    delta: float | None = None
    accountant: str | None = None
    epochs: int | None = None
    batch_size: int | None = None
    accumulation_steps: int = 1
    learning_rate: float | None = None
    l2_norm_clip: float | None = None
    pca_noise_multiplier: float | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    seed: int | None = None
    target: str | None = None
    user_column: str | None = None
    examples_per_user: int | None = None

    def __post_init__(self) -> None:
        check_name(self.dataset)
        if (self.target is not None) != str(self.dataset).endswith(".csv"):
            raise ValueError(
                "Argument `--target` must name the column to predict for a .csv file, "
                f"and for nothing else. Received: {self.target} for {self.dataset}"
            )
        if self.user_column is not None and self.target is None:
            raise ValueError(
                "Argument `--user-column` applies to .csv files only. Received: "
                f"{self.user_column} for {self.dataset}"
            )
        if self.examples_per_user is not None and self.user_column is None:
            raise ValueError(
                "Argument `--examples-per-user` needs `--user-column`, which tells to "
                f"whom a row belongs. Received: {self.examples_per_user}"
            )
        for name in ("target_epsilon", "learning_rate", "l2_norm_clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(
                    f"Argument `{option_name(name)}` must be positive and finite. "
                    f"Received: {value}"
                )
        if self.delta is not None and not 0 < self.delta < 1:
            raise ValueError(
                f"Argument `--delta` must be between 0 and 1. Received: {self.delta}"
            )
        if self.target_epsilon is not None and self.noise_multiplier is not None:
            raise ValueError(
                "Pass `--target-epsilon` or `--noise-multiplier`, not both."
            )
        if self.noise is not None and self.mechanism != "encoding":
            raise ValueError(
                "Argument `--noise` applies to `--mechanism encoding` only."
            )

    @property
    def budget(self) -> float | None:
        """The target epsilon; `None` if the noise is given instead."""
        if self.noise_multiplier is not None:
            return None
        return self.target_epsilon or DEFAULT_TARGET_EPSILON

    def write(self, path: Path) -> None:
        """Writes a JSON file."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Reads what `write` wrote."""
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            raise ValueError(
                f"Argument `--resume` needs a training in {path.parent}, and there is "
                "none."
            ) from None
        except (TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} is broken: {error}") from None

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace, **changes: Any) -> Settings:
        """The settings in parsed arguments that have the same names."""
        names = [field.name for field in dataclasses.fields(cls)]
        values = {n: getattr(arguments, n) for n in names if hasattr(arguments, n)}
        values["options"] = dict(arguments.options or ())
        return cls(**{**values, **changes})


def add_arguments(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """Adds the arguments that the settings are made of.

    Args:
        parser: The subcommand's parser.
        several: Leaves out mechanism and seed, of which there will be several.
    """
    _add_data_and_model(parser.add_argument_group("data and model"))
    _add_privacy(parser.add_argument_group("privacy"), several)
    _add_training(parser.add_argument_group("training"), several)


def _add_data_and_model(data: Any) -> None:
    data.add_argument(
        "--dataset",
        default="digits",
        metavar="NAME",
        help=f"{', '.join(NAMES)} (the first is embedded, and the default), or the path "
        "of a .csv or .npz file",
    )
    data.add_argument(
        "--target", metavar="COLUMN", help="the column to predict, of a .csv file"
    )
    data.add_argument(
        "--user-column",
        metavar="COLUMN",
        help="the column of a .csv file that tells to whom a row belongs: people are "
        "drawn and protected, with all of their rows",
    )
    data.add_argument(
        "--examples-per-user",
        type=positive_int,
        metavar="K",
        help=f"the most rows of one person in a lot. Default: {DEFAULT_ROWS}",
    )
    data.add_argument(
        "--data-dir",
        metavar="DIR",
        help="directory of .npz files. Default: $KERAS_DP_DATA",
    )
    data.add_argument(
        "--cache-dir",
        metavar="DIR",
        help="keeps features of the inputs (scatter_... models) for the next training; "
        "they are as private as the data",
    )
    data.add_argument(
        "--model",
        metavar="NAME",
        help="a preset (tanh_cnn, small_cnn, cifar_cnn, pca_mlp, mlp, linear, "
        "embedding_bag, bag_of_words, binned_linear, scatter_linear, "
        "scatter_drawn, scatter_normalized, scatter_random, scatter_cnn), or "
        "module:function, called with the data set",
    )


def _add_privacy(privacy: Any, several: bool) -> None:
    if not several:
        add_mechanism(privacy)
    add_noise(privacy)
    privacy.add_argument(
        "--target-epsilon",
        type=number,
        metavar="EPSILON",
        help="the noise is calibrated to it. "
        f"Default: {DEFAULT_TARGET_EPSILON:g}, unless noise is given",
    )
    if not several:
        add_noise_multiplier(privacy, ", in place of a target")
    add_delta_and_accountant(privacy, "examples (or people)", of_recipe=not several)
    privacy.add_argument(
        "--l2-norm-clip", type=number, metavar="C", help="bound of one example"
    )
    privacy.add_argument(
        "--pca-noise-multiplier",
        type=number,
        metavar="SIGMA",
        help="noise of the private PCA, for models that have one",
    )
    privacy.add_argument(
        "--set",
        dest="options",
        action="append",
        type=_option,
        metavar="KEY=VALUE",
        help="a further argument of the mechanism, such as direction=adaclip",
    )


def _add_training(training: Any, several: bool) -> None:
    training.add_argument("--epochs", type=positive_int, metavar="N")
    training.add_argument(
        "--batch-size",
        type=positive_int,
        metavar="N",
        help="expected number of examples (or people) in a lot",
    )
    training.add_argument(
        "--accumulation-steps",
        type=positive_int,
        default=1,
        metavar="N",
        help="spread a lot over N batches, to save memory",
    )
    training.add_argument(
        "--optimizer",
        metavar="NAME",
        help="a Keras optimizer, such as SGD or Adam; or AdamBC",
    )
    training.add_argument("--learning-rate", type=number, metavar="RATE")
    if not several:
        training.add_argument(
            "--seed",
            type=int,
            help="of the initial weights. Lots and noise never depend on it",
        )


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not (key.isidentifier() and equals):
        raise argparse.ArgumentTypeError(f"must be KEY=VALUE. Received: {text}")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value
