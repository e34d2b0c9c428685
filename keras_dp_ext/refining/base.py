"""What a refinement is: post-processing of a noised sum, as a value."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.noise import Noise


class Refinement(abc.ABC):
    """Sees what has been noised, and public facts, only: it costs no privacy.

    Refinements are frozen dataclasses that print, compare and serialise.
    """

    #: All subclasses, by class name.
    registry: ClassVar[dict[str, type[Refinement]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Refinement.registry[cls.__name__] = cls

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

    def serialize(self) -> dict[str, Any]:
        """A JSON dictionary that `keras_dp_ext.refining.get` turns back."""
        return {"class_name": type(self).__name__, "config": dataclasses.asdict(self)}


def get(identifier: Refinement | Mapping[str, Any]) -> Refinement:
    """The refinement that `identifier` stands for.

    Raises:
        ValueError: If `identifier` names no refinement.

    Example:

    >>> from keras_dp_ext import refining
    >>> refining.get(refining.KSDenoising().serialize())
    KSDenoising(distance='ks')
    """
    if isinstance(identifier, Refinement):
        return identifier
    name = identifier.get("class_name") if isinstance(identifier, Mapping) else None
    if name not in Refinement.registry:
        raise ValueError(
            "Argument `refine` must be a `keras_dp_ext.refining.Refinement` or a "
            f"serialised one, of a class in {sorted(Refinement.registry)}. "
            f"Received: refine={identifier}"
        )
    return Refinement.registry[name](**identifier["config"])
