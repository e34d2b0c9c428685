"""What a bound is: a value that limits each row and knows its sensitivity."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from keras_dp_ext.accounting.sensitivity import Sensitivity

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.gradients import PerExampleGradients


class Bound(abc.ABC):
    """Limits what one row of per-example gradients can add to the sum.

    Bounds are frozen dataclasses: they print, compare, serialise and combine with a
    noise and a refinement (`dp.optimizers.make_private`).
    """

    #: All subclasses, by class name.
    registry: ClassVar[dict[str, type[Bound]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Bound.registry[cls.__name__] = cls

    @abc.abstractmethod
    def sum(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        """For each variable, the sum over rows that were bounded one by one.

        Row b of what is summed may depend on row b only. A row of zeros must add
        nothing: padding is such a row.
        """

    @abc.abstractmethod
    def sensitivity(self, num_parameters: int) -> Sensitivity:
        """What one row can add to the sum, for a model of this size."""

    def serialize(self) -> dict[str, Any]:
        """A JSON dictionary that `keras_dp_ext.bounding.get` turns back."""
        config = {
            field.name: _plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
        }
        return {"class_name": type(self).__name__, "config": config}


def get(identifier: Bound | Mapping[str, Any]) -> Bound:
    """The bound that `identifier` stands for.

    Args:
        identifier: A `Bound`, or a dictionary made by `Bound.serialize`.

    Raises:
        ValueError: If `identifier` names no bound.

    Example:

    >>> from keras_dp_ext import bounding
    >>> bounding.get(bounding.L2Clip(2.0).serialize())
    L2Clip(l2_norm_clip=2.0)
    """
    if isinstance(identifier, Bound):
        return identifier
    name = identifier.get("class_name") if isinstance(identifier, Mapping) else None
    if name not in Bound.registry:
        raise ValueError(
            "Argument `bound` must be a `keras_dp_ext.bounding.Bound` or a serialised "
            f"one, of a class in {sorted(Bound.registry)}. Received: bound={identifier}"
        )
    return Bound.registry[name](**identifier["config"])


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.serialize() if hasattr(value, "serialize") else value
