"""A mechanism put together of a bound, a noise and a refinement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keras_dp_ext import bounding, refining
from keras_dp_ext import noise as noises
from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.sensitivity import release_of
from keras_dp_ext.bounding import AdaptiveBound, Bound, Encoding
from keras_dp_ext.mechanisms.base import Mechanism
from keras_dp_ext.noise import CorrelatedNoise, Gaussian, Noise, NoiseSequence
from keras_dp_ext.refining import Refinement

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.gradients import PerExampleGradients


class Composed(Mechanism):
    """Bounds every row, adds noise to the sum, refines the result.

    What one release costs follows from the bound's sensitivity and the noise's
    density. A pair for which no bound on epsilon is known is an error.

    Args:
        bound: A `keras_dp_ext.bounding.Bound`.
        noise: A `keras_dp_ext.noise.Noise` or `CorrelatedNoise`, its name, or a
            dictionary from release numbers to noises, in the units of the sum: with
            `L2Clip(C)`, `Gaussian(s)` has a noise multiplier of `s / C`.
        refine: A `keras_dp_ext.refining.Refinement`, or `None`.

    Example:

    >>> import keras, keras_dp_ext as dp
    >>> optimizer = dp.optimizers.make_private(
    ...     keras.optimizers.Adam,
    ...     bound=dp.bounding.Normalized(),
    ...     noise=dp.noise.Gaussian(1.1),
    ...     learning_rate=1e-3,
    ... )
    >>> optimizer.mechanism.claim(num_parameters=10).proven
    GaussianRelease(noise_multiplier=1.1)
    """

    name = "composed"

    def __init__(
        self,
        bound: Bound | Mapping[str, Any] | None = None,
        noise: Noise
        | NoiseSequence
        | CorrelatedNoise
        | str
        | Mapping[Any, Any] = "gaussian",
        refine: Refinement | Mapping[str, Any] | None = None,
    ):
        self.bound_stage: Any = (
            bounding.L2Clip() if bound is None else bounding.get(bound)
        )
        self.noise: Any = noises.get_any(noise)
        if isinstance(self.bound_stage, Encoding):
            self.codebook = self.bound_stage.codebook
        self.refine_stage = None if refine is None else refining.get(refine)
        # An unknown pair fails here, not in the middle of a training.
        release_of(self.bound_stage.sensitivity(num_parameters=1), self.noise)
        if self.remembers_noise and self.refine_stage is not None:
            raise ValueError(
                "Argument `refine` must be None with correlated noise: a refinement "
                f"knows the noise of one release only. Received: refine={refine}"
            )
        self._memory: list[Any] = []
        self._bound_memory: list[Any] = []

    def get_config(self) -> dict[str, Any]:
        return {
            "bound": self.bound_stage.serialize(),
            "noise": self.noise.serialize(),
            "refine": self.refine_stage and self.refine_stage.serialize(),
        }

    @property
    def noise_multiplier(self) -> float:
        """Scale of the noise over the bound of one row."""
        sensitivity: Any = self.bound_stage.sensitivity(num_parameters=1)
        norm = getattr(sensitivity, "norm", None)
        return self.noise.scale / (sensitivity.codebook.norm if norm is None else norm)

    @classmethod
    def arguments_at(cls, noise_multiplier: float, **arguments: Any) -> dict[str, Any]:
        unit = cls(**{**arguments, "noise": arguments.get("noise", "gaussian")})
        scale = unit.noise.scale * noise_multiplier / unit.noise_multiplier
        return {**arguments, "noise": unit.noise.with_scale(scale)}

    def noise_deviation(self) -> float | None:
        is_plain = isinstance(self.noise, Gaussian) and self.refine_stage is None
        return self.noise.scale if is_plain and not self._is_adaptive else None

    @property
    def _is_adaptive(self) -> bool:
        return isinstance(self.bound_stage, AdaptiveBound)

    def statistics(self) -> list[tuple[int, ...]]:
        return self.bound_stage.statistics() if self._is_adaptive else []

    @property
    def current_clip(self) -> float:
        """The clip of the next release, where it moves."""
        return float(self.bound_stage.clip(self._bound_memory))

    def bound(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        if self._is_adaptive:
            return self.bound_stage.sum_at(gradients, self._bound_memory)
        return self.bound_stage.sum(gradients)

    def build(self, variables: Sequence[Any], add_variable: Callable[..., Any]) -> None:
        if self._is_adaptive:
            self._bound_memory = self.bound_stage.make_memory(add_variable)
        if self.remembers_noise:
            from keras_dp_ext.mechanisms.model_noise import total_size

            shapes = [variable.shape for variable in variables]
            size = total_size([*shapes, *self.statistics()])
            self._memory = self.noise.make_memory(size, add_variable)

    @property
    def remembers_noise(self) -> bool:
        return isinstance(self.noise, CorrelatedNoise)

    def fresh_deviation(self) -> float | None:
        # The greatest entry of C on its diagonal is at most 1, in all strategies.
        return self.noise.scale if self.remembers_noise else None

    def draw_noise(
        self, shapes: Sequence[Any], seed: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        from keras_dp_ext.mechanisms.model_noise import cut, draw_at, total_size

        if not self.remembers_noise:
            return draw_at(self.noise, shapes, seed, step)
        size = total_size(shapes)
        return cut(self.noise.draw(size, seed, step, self._memory), shapes)

    def remember_noise(
        self, noise: list[tf.Tensor], seed: tf.Tensor, step: tf.Tensor
    ) -> None:
        from keras_dp_ext.mechanisms.model_noise import flat

        if self.remembers_noise:
            self.noise.remember(flat(noise), seed, step, self._memory)

    def refine(self, noised: list[tf.Tensor], step: tf.Tensor) -> list[tf.Tensor]:
        if not self._is_adaptive:
            return self._refined(noised, step)
        # A refinement knows the noise in the units in which it was added.
        split = len(noised) - len(self.statistics())
        noised = [*self._refined(noised[:split], step), *noised[split:]]
        return self.bound_stage.follow(noised, self._bound_memory, self.expected_rows)

    def _refined(self, noised: list[tf.Tensor], step: tf.Tensor) -> list[tf.Tensor]:
        if self.refine_stage is None:
            return noised
        refine = self.refine_stage.refine
        if isinstance(self.noise, NoiseSequence):
            return self.noise.select(step, lambda noise: refine(noised, noise, step))
        return refine(noised, self.noise, step)

    def claim(self, num_parameters: int, examples_per_microbatch: int = 1) -> Claim:
        sensitivity = self.bound_stage.sensitivity(num_parameters)
        return Claim(release_of(sensitivity, self.noise, examples_per_microbatch))
