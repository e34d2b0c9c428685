"""What a refinement is: post-processing of a noised sum, as a value."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from keras_dp_ext._value import Value, deserialize

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.noise import Noise


class Refinement(Value, abc.ABC):
    """Sees what has been noised, and public facts, only: it costs no privacy.

    Refinements are frozen dataclasses that print, compare and serialise.
    """

    @abc.abstractmethod
    def refine(
        self, noised: list[tf.Tensor], noise: Noise, step: tf.Tensor
    ) -> list[tf.Tensor]:
        """What is released in place of `noised`.

        Args:
            noised: For each variable, the bounded sum plus noise.
            noise: The distribution of the noise; never the draw.
            step: `int64` scalar, the number of releases before this one.
        """


def get(identifier: Refinement | Mapping[str, Any]) -> Refinement:
    """The refinement that `identifier` stands for.

    Raises:
        ValueError: If `identifier` names no refinement.

    Example:

    >>> from keras_dp_ext import refining
    >>> refining.get(refining.KSDenoising().serialize())
    KSDenoising(distance='ks')
    """
    return deserialize(Refinement, identifier, "refine")  # type: ignore[type-abstract]
