"""Noises of different families, one after the other: the paper's Z_1 ... Z_T."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from keras_dp_ext._checks import check_starts
from keras_dp_ext._value import Value, plain
from keras_dp_ext.noise.base import Noise

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class NoiseSequence(Value):
    """A noise of its own from each of some releases on.

    The training step draws from the table that the accountant composes (Nasr et al.,
    Theorem 1), so that the two cannot differ. A dictionary from release numbers to
    noises stands for it wherever a mechanism takes one.

    Args:
        starts: Ascending release numbers; the first is 0.
        noises: The noise from each of them on; the last one stays.

    Example:

    >>> import keras_dp_ext as dp
    >>> optimizer = dp.optimizers.EncodedSGD(
    ...     noise={0: dp.noise.Gaussian(1.1), 500: dp.noise.StudentT(9, 1.0)}
    ... )
    >>> optimizer.mechanism.noise.at(499), optimizer.mechanism.noise.at(500)
    (Gaussian(scale=1.1), StudentT(df=9.0, scale=1.0))
    """

    starts: tuple[int, ...]
    noises: tuple[Noise, ...]

    def __post_init__(self) -> None:
        starts = check_starts(self.starts, "noises", self.noises)
        for noise in self.noises:
            if not isinstance(noise, Noise):
                raise ValueError(
                    "Argument `noises` must hold noises that are independent from "
                    f"release to release. Received: {noise}"
                )
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "noises", tuple(self.noises))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> NoiseSequence:
        from keras_dp_ext.noise import get

        return cls(config["starts"], tuple(get(noise) for noise in config["noises"]))

    def get_config(self) -> dict[str, Any]:
        return {"starts": list(self.starts), "noises": plain(self.noises)}

    @property
    def scale(self) -> float:
        """The scale of the first noise, by which `with_scale` measures."""
        return self.noises[0].scale

    def with_scale(self, scale: float) -> NoiseSequence:
        """The same noises, each multiplied so that the first has this scale."""
        factor = scale / self.scale
        return NoiseSequence(
            self.starts, tuple(n.with_scale(factor * n.scale) for n in self.noises)
        )

    def at(self, release: int) -> Noise:
        """The noise of release number `release`, counted from 0."""
        return self.noises[sum(start <= release for start in self.starts) - 1]

    def select(self, step: tf.Tensor, make: Callable[[Noise], Any]) -> Any:
        """`make(noise)` for the noise of release number `step`, in a graph.

        Only that of one noise is computed.
        """
        import tensorflow as tf

        begun = tf.constant(self.starts, tf.int64) <= tf.cast(step, tf.int64)
        index = tf.reduce_sum(tf.cast(begun, tf.int32)) - 1
        branches = [lambda noise=noise: make(noise) for noise in self.noises]
        return tf.switch_case(index, branches)
