"""What a bound is: a value that limits each row and knows its sensitivity."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from keras_dp_ext._value import Value, deserialize
from keras_dp_ext.accounting.sensitivity import Sensitivity

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.gradients import PerExampleGradients


class Bound(Value, abc.ABC):
    """Limits what one row of per-example gradients can add to the sum.

    Bounds are frozen dataclasses: they print, compare, serialise and combine with a
    noise and a refinement (`dp.optimizers.make_private`).
    """

    @abc.abstractmethod
    def sum(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        """For each variable, the sum over rows that were bounded one by one.

        Row b of what is summed may depend on row b only. A row of zeros must add
        nothing: padding is such a row.
        """

    @abc.abstractmethod
    def sensitivity(self, num_parameters: int) -> Sensitivity:
        """What one row can add to the sum, for a model of this size."""


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
    return deserialize(Bound, identifier, "bound")  # type: ignore[type-abstract]
