"""Mechanisms by name, and what each claims; needs no TensorFlow."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from keras_dp_ext._names import MECHANISMS
from keras_dp_ext._own_code import import_own, is_own
from keras_dp_ext.accounting.claim import Claim

if TYPE_CHECKING:
    from keras_dp_ext.mechanisms.base import Mechanism

#: The mechanisms that the command line knows.
NAMES = tuple(MECHANISMS)


def mechanism_class(name: str) -> type[Mechanism]:
    """The class of a mechanism.

    Args:
        name: One of `NAMES`, or `module:Class` for a mechanism of your own.

    Raises:
        ValueError: If there is no such mechanism.

    Example:

    >>> mechanism_class("dpsgd").name
    'dpsgd'
    """
    if is_own(name):
        from keras_dp_ext.mechanisms.base import Mechanism

        own = import_own(name, "mechanism")
        if not (inspect.isclass(own) and issubclass(own, Mechanism)):
            raise ValueError(
                "Argument `mechanism` must name a subclass of "
                f"`keras_dp_ext.mechanisms.Mechanism`. Received: mechanism={name}"
            )
        return own
    if name not in MECHANISMS:
        raise ValueError(
            f"Argument `name` must be one of {NAMES}, or `module:Class`. "
            f"Received: name={name}"
        )
    module, class_name = MECHANISMS[name]
    module = importlib.import_module(f"keras_dp_ext.mechanisms.{module}")
    return getattr(module, class_name)


def mechanism(name: str, **parameters: Any) -> Mechanism:
    """A mechanism by its name.

    Args:
        name: As for `mechanism_class`.
        **parameters: Arguments of its constructor.

    Raises:
        ValueError: If there is no such mechanism, or an argument is wrong.

    Example:

    >>> mechanism("dpsgd", noise_multiplier=0.9).claim(num_parameters=100).proven
    GaussianRelease(noise_multiplier=0.9)
    """
    return mechanism_class(name)(**parameters)


def claim(
    name: str,
    num_parameters: int,
    examples_per_microbatch: int = 1,
    **parameters: Any,
) -> Claim:
    """What one release of a mechanism claims; see `Mechanism.claim`.

    Example:

    >>> claim("tanh", 10_000, noise_multiplier=1.0, guarantee="published").proven
    GaussianRelease(noise_multiplier=0.01)
    """
    return mechanism(name, **parameters).claim(num_parameters, examples_per_microbatch)
