"""A noise schedule: what the noise's scale is multiplied by, release by release."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_dp_ext._checks import check_positive, check_starts
from keras_dp_ext.noise.base import Noise
from keras_dp_ext.noise.sequence import NoiseSequence

if TYPE_CHECKING:
    import tensorflow as tf

# Tabulated factors are rounded to powers of this.
_RATIO = 1.01

#: How many releases the table of a function covers by default.
DEFAULT_STEPS = 20_000


@dataclasses.dataclass(frozen=True)
class NoiseSchedule:
    """A factor that is constant between given releases (the paper's Z_1 ... Z_T).

    The table is what the training step reads and what the accountant composes
    (Nasr et al., Theorem 1), so that the two cannot differ.

    Args:
        starts: Ascending release numbers; the first is 0.
        factors: The factor from each of them on; the last one stays.

    Example:

    >>> schedule = NoiseSchedule(starts=(0, 100), factors=(1.0, 0.5))
    >>> schedule.pieces(90, 120)
    [(1.0, 10), (0.5, 20)]
    """

    starts: tuple[int, ...]
    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        starts = check_starts(self.starts, "factors", self.factors)
        for factor in self.factors:
            check_positive("factors", factor)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "factors", tuple(float(f) for f in self.factors))

    @classmethod
    def tabulate(cls, function: Callable[[Any], Any], steps: int) -> NoiseSchedule:
        """The table of a function of the release number, such as a Keras schedule.

        Values are rounded to powers of 1.01, so that slow decays make short
        tables and a quick account.

        Args:
            function: From a release number to a positive factor.
            steps: How many releases the table covers. Afterwards the last value
                stays.

        Raises:
            ValueError: If a value is not positive and finite.

        Example:

        >>> NoiseSchedule.tabulate(lambda step: 2.0 ** -(step // 50), steps=101).starts
        (0, 50, 100)
        """
        if steps < 1:
            raise ValueError(
                f"Argument `steps` must be at least 1. Received: steps={steps}"
            )
        values = _values(function, int(steps))
        for value in (values.min(), values.max()):
            check_positive("function", value)
        powers = np.round(np.log(values) / math.log(_RATIO)).astype(int)
        changes = np.flatnonzero(np.diff(powers, prepend=powers[0] - 1))
        return cls(
            tuple(changes.tolist()),
            tuple(float(_RATIO**power) for power in powers[changes]),
        )

    def pieces(self, start: int, stop: int) -> list[tuple[float, int]]:
        """The factors of releases `start` up to `stop`, each with its count."""
        cuts = [s for s in self.starts if start < s < stop]
        edges = [start, *cuts, stop]
        return [
            (self.factors[bisect.bisect_right(self.starts, a) - 1], b - a)
            for a, b in itertools.pairwise(edges)
            if b > a
        ]

    def of(self, noise: Noise) -> NoiseSequence:
        """The noises that this makes of one."""
        noises = tuple(noise.with_scale(f * noise.scale) for f in self.factors)
        return NoiseSequence(self.starts, noises)

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """The factor of release number `step`, in a graph."""
        import tensorflow as tf

        begun = tf.cast(
            tf.constant(self.starts, tf.int64) <= tf.cast(step, tf.int64), tf.int32
        )
        return tf.gather(
            tf.constant(self.factors, tf.float32), tf.reduce_sum(begun) - 1
        )

    def serialize(self) -> dict[str, Any]:
        """A JSON dictionary that `schedule.get` turns back."""
        return {
            "class_name": type(self).__name__,
            "config": {"starts": list(self.starts), "factors": list(self.factors)},
        }


def get(
    identifier: NoiseSchedule | Mapping[Any, Any] | Callable[[Any], Any] | None,
) -> NoiseSchedule | None:
    """The schedule that `identifier` stands for; `None` stays `None`.

    Args:
        identifier: A `NoiseSchedule`, a dictionary made by its `serialize`, a
            dictionary from release numbers to factors, a Keras schedule or any
            other function of the release number (tabulated for `DEFAULT_STEPS`
            releases; `NoiseSchedule.tabulate` takes more), or `None`.

    Raises:
        ValueError: If it is none of these.
    """
    if identifier is None or isinstance(identifier, NoiseSchedule):
        return identifier
    if isinstance(identifier, Mapping):
        if identifier.get("class_name") == NoiseSchedule.__name__:
            return NoiseSchedule(**identifier["config"])
        if all(isinstance(start, int) for start in identifier):
            starts = sorted(identifier)
            return NoiseSchedule(
                tuple(starts), tuple(identifier[start] for start in starts)
            )
    if callable(identifier):
        return NoiseSchedule.tabulate(identifier, DEFAULT_STEPS)
    raise ValueError(
        "Argument `noise_schedule` must be a NoiseSchedule, a dictionary from release "
        "numbers to factors, a function of the release number, or None. "
        f"Received: noise_schedule={identifier}"
    )


def _values(function: Callable[[Any], Any], steps: int) -> np.ndarray:
    """`function(0), ..., function(steps - 1)`."""
    if hasattr(function, "get_config"):
        # A Keras schedule: thousands of eager calls would take seconds.
        import tensorflow as tf

        @tf.function
        def evaluate() -> Any:
            return tf.map_fn(
                lambda step: tf.cast(function(step), tf.float32),
                tf.range(steps, dtype=tf.int64),
                fn_output_signature=tf.float32,
            )

        return evaluate().numpy().astype(np.float64)
    return np.array([float(function(step)) for step in range(steps)])
