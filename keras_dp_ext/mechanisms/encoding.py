"""Gradient encoding with arbitrary noise and denoising (Nasr et al.)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keras_dp_ext import noise as noises
from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.sensitivity import release_of
from keras_dp_ext.bounding import codebook as codebooks
from keras_dp_ext.bounding.codebook import Codebook
from keras_dp_ext.bounding.encoding import Encoding
from keras_dp_ext.mechanisms.base import Mechanism
from keras_dp_ext.noise import Noise, NoiseSchedule, NoiseSequence, schedule
from keras_dp_ext.refining import Denoising
from keras_dp_ext.refining.denoising import Distance, distance_config, get_distance

if TYPE_CHECKING:
    import numpy.typing as npt
    import tensorflow as tf

    from keras_dp_ext.gradients import PerExampleGradients


class Encoded(Mechanism):
    """Clamps gradients rank by rank to a codebook's vectors, then adds any noise.

    Each per-example gradient is replaced by one that is dominated by a vector of a
    public codebook: its t-th largest magnitude is at most the vector's t-th
    largest entry. What one example can do is thus known coordinate by coordinate,
    so that noise of any symmetric density has a computable epsilon. Finally the
    noised sum may be multiplied by its distance from the noise distribution:
    updates that look like pure noise hardly move the weights.

    The defaults are the paper's.

    Args:
        codebook: A `keras_dp_ext.bounding.Codebook`, or public vectors of your own,
            `[n, parameters]` (a `VectorCodebook`); `None` is the paper's, 1000
            standard normal vectors of norm 1. Its norm plays the part of DP-SGD's
            `l2_norm_clip`.
        noise: A `keras_dp_ext.noise.Noise` or its name, in the units of the
            codebook's norm. Or noises of several families, by release number, such as
            `{0: dp.noise.Gaussian(1.1), 500: dp.noise.StudentT(9, 1.0)}`.
        denoise: The distance by which the noised sum is multiplied: "ks"
            (Kolmogorov-Smirnov), "wasserstein", "energy", or a function of the noised
            vector and its noise; see `keras_dp_ext.refining.Denoising`. `None` leaves
            it as it is. The distance of the last step is
            `mechanism.denoising_factor`.
        noise_schedule: Multiplies the noise's scale: a Keras schedule or another
            function of the release number, a dictionary from release numbers to
            factors, such as `{0: 1.0, 1000: 0.8}`, or a `NoiseSchedule`.
        ranking: "bucket" or, as a slow reference, "exact"; see
            `keras_dp_ext.bounding.encode_rows.encode_rows`.

    Example:

    >>> mechanism = Encoded(codebook=Codebook(norm=0.5), noise="laplace")
    >>> mechanism.noise_multiplier
    2.0

    References:

    - Nasr, Shokri, Houmansadr (2020), "Improving Deep Learning with Differential
      Privacy using Gradient Encoding and Denoising".
    """

    name = "encoding"

    def __init__(
        self,
        codebook: Codebook | Mapping[str, Any] | npt.ArrayLike | None = None,
        noise: Noise | NoiseSequence | str | Mapping[Any, Any] = "student-t",
        denoise: Distance | Mapping[str, Any] | None = "ks",
        noise_schedule: NoiseSchedule
        | Mapping[Any, Any]
        | Callable[[Any], Any]
        | None = None,
        ranking: str = "bucket",
    ):
        self._bound = Encoding(codebook, ranking)
        self.codebook = self._bound.codebook
        self.noise = _independent(noise)
        self.denoise = None if denoise is None else get_distance(denoise, "denoise")
        self.noise_schedule = schedule.get(noise_schedule)
        self.ranking = ranking
        several = self.noise.noises if isinstance(self.noise, NoiseSequence) else ()
        if several and self.noise_schedule is not None:
            raise ValueError(
                "Argument `noise_schedule` must be None where `noise` has several "
                "noises: give each of them its scale. "
                f"Received: noise_schedule={noise_schedule}"
            )
        self._denoising: dict[Any, Denoising] = {
            one: Denoising(one, self.denoise)
            for one in several or (self.noise,)
            if self.denoise is not None
        }
        self._denoising_factor = None

    @classmethod
    def arguments_at(
        cls, noise_multiplier: float, l2_norm_clip: float = 1.0, **arguments: Any
    ) -> dict[str, Any]:
        """`l2_norm_clip` is the norm of the codebook, unless one is given."""
        arguments.setdefault("codebook", Codebook(norm=l2_norm_clip))
        noise = _independent(arguments.get("noise", "student-t"))
        scale = noise_multiplier * codebooks.get(arguments["codebook"]).norm
        return {**arguments, "noise": noise.with_scale(scale)}

    @property
    def noise_multiplier(self) -> float:
        """Scale of the noise over the norm of the codebook."""
        return self.noise.scale / self.codebook.norm

    @property
    def denoising_factor(self) -> float | None:
        """What the last update was multiplied by; `None` without denoising."""
        if self._denoising_factor is None:
            return None
        return float(self._denoising_factor.numpy())

    def build(self, variables: Sequence[Any], add_variable: Callable[..., Any]) -> None:
        self._bound.check_variables([math.prod(v.shape) for v in variables])
        if self.denoise is not None:
            self._denoising_factor = add_variable(
                shape=(), dtype="float32", name="denoising_factor", initializer="ones"
            )

    def bound(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        return self._bound.sum(gradients)

    def draw_noise(
        self, shapes: Sequence[Any], seed: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        import tensorflow as tf

        from keras_dp_ext.mechanisms.model_noise import draw_at

        drawn = draw_at(self.noise, shapes, seed, step)
        if self.noise_schedule is None:
            return drawn
        factor = self._noise_factor(step)
        return [tf.cast(factor, value.dtype) * value for value in drawn]

    def refine(self, noised: list[tf.Tensor], step: tf.Tensor) -> list[tf.Tensor]:
        if self.denoise is None:
            return noised
        factor = self._usefulness(noised, step)
        if self._denoising_factor is not None:
            self._denoising_factor.assign(factor)
        return [factor * value for value in noised]

    def _usefulness(self, noised: list[tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """The paper's oracle `O`, of the noise of this release."""
        if isinstance(self.noise, NoiseSequence):
            return self.noise.select(
                step, lambda noise: self._denoising[noise].factor(noised)
            )
        return self._denoising[self.noise].factor(noised, self._noise_factor(step))

    def _noise_factor(self, step: tf.Tensor) -> Any:
        return 1.0 if self.noise_schedule is None else self.noise_schedule(step)

    def claim(self, num_parameters: int, examples_per_microbatch: int = 1) -> Claim:
        noise = self.noise
        if self.noise_schedule is not None:
            assert isinstance(noise, Noise)  # The constructor has seen to it.
            noise = self.noise_schedule.of(noise)
        release = release_of(
            self._bound.sensitivity(num_parameters), noise, examples_per_microbatch
        )
        return Claim(release, published_conversion="classic")

    def get_config(self) -> dict[str, Any]:
        denoise = None if self.denoise is None else distance_config(self.denoise)
        return {**super().get_config(), "denoise": denoise}


def _independent(identifier: Any) -> Any:
    """A `Noise` or a `NoiseSequence`; correlated noise is an error."""
    noise: Any = noises.get_any(identifier)
    return noise if isinstance(noise, NoiseSequence) else noises.get(noise)
