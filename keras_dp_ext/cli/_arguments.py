"""Arguments that several subcommands have, and the types of arguments."""

from __future__ import annotations

import argparse
import math
from typing import Any

from keras_dp_ext._names import MECHANISMS, NOISES
from keras_dp_ext._own_code import is_own

#: As help texts say it.
MECHANISM_NAMES = ", ".join(MECHANISMS)


def add_mechanism(group: Any, **settings: Any) -> None:
    """Adds `--mechanism`: a known name, or `module:Class`."""
    group.add_argument(
        "--mechanism",
        type=mechanism_name,
        metavar="NAME",
        **{
            "default": "dpsgd",
            "help": f"{MECHANISM_NAMES}, or module:Class, a mechanism of your own. "
            "Default: dpsgd",
            **settings,
        },
    )


def add_noise_multiplier(group: Any, remark: str) -> None:
    """Adds `--noise-multiplier`."""
    group.add_argument(
        "--noise-multiplier",
        type=number,
        metavar="SIGMA",
        help=f"noise over L2 norm of one example{remark}",
    )


def add_noise(group: Any) -> None:
    """Adds `--noise`."""
    group.add_argument(
        "--noise", choices=NOISES, help="encoding: the noise. Default: student-t"
    )


def add_delta_and_accountant(group: Any, counted: str, of_recipe: bool = False) -> None:
    """Adds `--delta` and `--accountant`, which a recipe may choose."""
    group.add_argument(
        "--delta",
        type=number,
        help=f"default: the greatest power of ten below 1 / {counted}",
    )
    group.add_argument(
        "--accountant",
        choices=("rdp", "pld"),
        default=None if of_recipe else "rdp",
        help=("default: that of the recipe, or " if of_recipe else "default: ")
        + "rdp. pld is tighter, for gaussian noise",
    )


def mechanism_name(text: str) -> str:
    """The name of a mechanism; one of the user's own is imported later."""
    if text not in MECHANISMS and not is_own(text):
        raise argparse.ArgumentTypeError(
            f"must be one of {MECHANISM_NAMES}, or module:Class. Received: {text}"
        )
    return text


def number(text: str) -> float:
    """A number that is not NaN."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise argparse.ArgumentTypeError(f"must be a number. Received: {text}")
    return value


def count(text: str) -> int:
    """A whole number, 0 or more; 6e4 is one."""
    value = number(text)
    if value < 0 or value != math.floor(value) or math.isinf(value):
        raise argparse.ArgumentTypeError(
            f"must be an integer, 0 or more. Received: {text}"
        )
    return int(value)


def positive_int(text: str) -> int:
    """A whole number, 1 or more."""
    value = count(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"must be at least 1. Received: {text}")
    return value


def option_name(name: str) -> str:
    """How the command line spells an argument: `noise_multiplier`, with hyphens."""
    return f"--{name.replace('_', '-')}"
