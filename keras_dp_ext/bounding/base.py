"""What a bound is: a value that limits each row and knows its sensitivity."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
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


class AdaptiveBound(Bound):
    """A bound that moves with what was released, and so has a memory.

    Beside the sums it may release further sums over the rows (`statistics`). Each row
    with all of them is what `sensitivity` bounds, at every state of the memory.
    """

    def sum(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        raise TypeError(f"{self} has a memory: call `sum_at`.")

    def statistics(self) -> list[tuple[int, ...]]:
        """Shapes of further sums over the rows."""
        return []

    @abc.abstractmethod
    def make_memory(self, add_variable: Callable[..., Any]) -> list[Any]:
        """Variables that start at zero and are saved: they hold nothing private."""

    @abc.abstractmethod
    def sum_at(
        self, gradients: PerExampleGradients, memory: Sequence[Any]
    ) -> list[tf.Tensor]:
        """As `sum`, followed by the statistics."""

    @abc.abstractmethod
    def follow(
        self, noised: list[tf.Tensor], memory: Sequence[Any], expected_rows: float
    ) -> list[tf.Tensor]:
        """The noised sums in the units of the gradients; updates the memory.

        Args:
            noised: What `sum_at` returned, with noise.
            memory: What `make_memory` made.
            expected_rows: The public number of rows in a lot.
        """


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
