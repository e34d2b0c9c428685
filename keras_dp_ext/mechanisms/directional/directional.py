"""Directional noise of Xiang et al.: proven by an ellipsoid clip, or as printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from keras_dp_ext._checks import check_clip_and_noise, check_in
from keras_dp_ext.accounting import events
from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.sensitivity import gaussian_release
from keras_dp_ext.analysis.published_budget import PublishedBudget
from keras_dp_ext.mechanisms.base import Mechanism

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.gradients import PerExampleGradients

_NAMED_DIRECTIONS = ("gradient", "uniform", "adaclip")

_CAVEAT = (
    "Directional noise as printed (Xiang et al., Algorithm 1) is quietest where `w` "
    "is small, and one person's data may differ along exactly that coordinate: the "
    "proven epsilon follows from the least noise of each step, far below what Eq. 13 "
    "accounts for. Further, `w` is clipped after averaging, so its sensitivity is "
    "twice the one used. Use `guarantee='proven'` for an epsilon that holds."
)

_PRUNING_CAVEAT = (
    "Pruning as printed (Xiang et al., section 6.1) keeps the largest coordinates of "
    "the exact sum: which ones they are is released without noise, so that the proven "
    "epsilon is infinite. Use `guarantee='proven'`, which prunes by noised values."
)


class Directional(Mechanism):
    """Noise whose size differs by coordinate, at the privacy of equal noise.

    Rows are clipped to the ellipsoid `sum_i (g_i / s_i)**2 <= l2_norm_clip**2`, and
    the sum gets N(0, (noise_multiplier * l2_norm_clip * s_i)**2): the Gaussian
    mechanism of multiplier `noise_multiplier`, for any `s` that comes from earlier
    releases. Where gradients of some coordinates are much smaller than others,
    small `s_i` keep noise from burying them. `s` starts at 1, which is DP-SGD, and
    then follows estimates that are made from noised sums only, at no privacy cost.
    It is normalised so that `l2_norm_clip` and the learning rate mean what they
    mean in DP-SGD.

    `guarantee="published"` runs Algorithm 1 as printed, and counts for each step
    the noise that a worst-case neighbour really faces; its proven epsilon is that
    of the counted noise.

    Args:
        direction: What `s` is made from, with `v_i` the second moment of
            coordinate `i`. `"gradient"`: `s_i ~ (v_i / |w_i|)**(1/3)`, `w` the
            gradient. `"uniform"`: `s_i ~ v_i**(1/3)`, the paper's `w = 1`.
            `"adaclip"`: `s_i ~ v_i**(1/4)`. Or public weights `w`, more for what
            must stay precise: a list with an array or number for each trainable
            variable, or a dictionary by variable path or name (others get 1).
            They must not be made from the private data.
        l2_norm_clip: Radius `C` of the ellipsoid; `alpha` if published.
        noise_multiplier: `sigma`. Not used if published: `published_budget`
            determines the noise there.
        guarantee: `"proven"` or `"published"`.
        smoothing: Decay of the moving averages behind `s`, in [0, 1).
        max_ratio: `s` stays within `[1 / max_ratio, max_ratio]`.
        pruning_ratio: Share of the coordinates that an update leaves out, for
            example 0.9, or `None`. What is not measured is neither noised nor
            released; see `pruning.py`. If published, the largest coordinates
            of the exact sum are left, as printed: epsilon is infinite.
        published_budget: A `PublishedBudget` (or a dictionary of its arguments);
            required if published.

    Example:

    >>> Directional(direction="gradient", noise_multiplier=1.1).claim(num_parameters=100).proven
    GaussianRelease(noise_multiplier=1.1)

    References:
        Xiang et al., "Differentially-Private Deep Learning With Directional
        Noise" (2021). Pichapati et al., "AdaCliP: Adaptive Clipping for Private
        SGD" (2019).
    """

    name = "directional"

    def __init__(
        self,
        direction: str | Sequence[Any] | Mapping[str, Any] = "gradient",
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        guarantee: Literal["proven", "published"] = "proven",
        smoothing: float = 0.95,
        max_ratio: float = 1e4,
        pruning_ratio: float | None = None,
        published_budget: PublishedBudget | Mapping[str, Any] | None = None,
    ):
        check_clip_and_noise(l2_norm_clip, noise_multiplier, guarantee)
        check_in("smoothing", smoothing, "[0, 1)")
        check_in("max_ratio", max_ratio, "[1, 1e6]")
        if pruning_ratio is not None:
            check_in("pruning_ratio", pruning_ratio, "(0, 1)")
        if isinstance(published_budget, Mapping):
            published_budget = PublishedBudget(**published_budget)
        self.direction = _plain_direction(direction)
        self.l2_norm_clip = l2_norm_clip
        self.noise_multiplier = noise_multiplier
        self.guarantee = guarantee
        self.smoothing = smoothing
        self.max_ratio = max_ratio
        self.pruning_ratio = pruning_ratio
        self.published_budget = published_budget
        if guarantee == "published":
            self._check_published()
        self._machine: Any = None

    def _check_published(self) -> None:
        if self.published_budget is None:
            raise ValueError(
                'Argument `published_budget` must be given if guarantee="published": '
                "Algorithm 1 derives its noise from the total budget. "
                f"Received: published_budget={self.published_budget}"
            )
        if self.direction == "adaclip":
            raise ValueError(
                'Argument `direction` must not be "adaclip" if '
                'guarantee="published": AdaClip is proven as it is. '
                f"Received: direction={self.direction!r}"
            )
        if self.direction == "gradient" and self.published_budget.split == 0:
            raise ValueError(
                "Argument `published_budget` must leave a share to `w` (split > 0) "
                f'for direction="gradient". Received: {self.published_budget}'
            )

    @property
    def _effective_budget(self) -> PublishedBudget:
        """Without a private direction nothing is spent on one ("Ours (w = 1)")."""
        budget = self.published_budget
        assert budget is not None  # The constructor has seen to it.
        if self.direction == "gradient":
            return budget
        return PublishedBudget(**{**budget.serialize(), "split": 0.0})

    def build(self, variables: Sequence[Any], add_variable: Callable[..., Any]) -> None:
        weights = self._weights(variables)
        if self.guarantee == "published":
            from keras_dp_ext.mechanisms.directional.published import (
                PublishedDirectional,
            )
            from keras_dp_ext.mechanisms.directional.published_pruning import (
                PublishedPruning,
            )

            ratio = self.pruning_ratio
            self._machine = PublishedDirectional(
                self.l2_norm_clip,
                self._effective_budget,
                weights,
                None if ratio is None else PublishedPruning(ratio),
            )
        else:
            self._machine = self._proven_machine(weights)
        self._machine.build(variables, add_variable)

    def _proven_machine(self, weights: Any) -> Any:
        from keras_dp_ext.mechanisms.directional.proven import ProvenDirectional
        from keras_dp_ext.mechanisms.directional.pruning import DirectionalPruning
        from keras_dp_ext.mechanisms.directional.scales import DirectionalScales

        scales = DirectionalScales(
            exponent=1 / 4 if self.direction == "adaclip" else 1 / 3,
            weights=weights,
            # Without noise the estimates still need a unit to resolve signals by.
            noise_unit=self.l2_norm_clip * max(self.noise_multiplier, 1e-3),
            smoothing=self.smoothing,
            max_ratio=self.max_ratio,
        )
        ratio = self.pruning_ratio
        pruning = None if ratio is None else DirectionalPruning(ratio)
        return ProvenDirectional(
            self.l2_norm_clip, self.noise_multiplier, scales, pruning
        )

    def _weights(self, variables: Sequence[Any]) -> str | list[np.ndarray]:
        """`"gradient"`, or a public array or number for each variable."""
        if self.direction == "gradient":
            return "gradient"
        if isinstance(self.direction, str):
            return [np.float32(1.0)] * len(variables)
        if isinstance(self.direction, dict):
            weights = _by_variable(self.direction, variables)
        else:
            weights = self.direction
        if len(weights) != len(variables):
            raise ValueError(
                "Argument `direction` must have one entry for each of the "
                f"{len(variables)} trainable variables. "
                f"Received: {len(weights)} entries"
            )
        arrays = [np.abs(np.asarray(weight, np.float32)) for weight in weights]
        for array, variable in zip(arrays, variables, strict=True):
            fits = array.shape in ((), tuple(variable.shape))
            if not fits or not np.all(np.isfinite(array)):
                raise ValueError(
                    "Argument `direction` must hold finite numbers or arrays of the "
                    f"variables' shapes. Received: shape {array.shape} for variable "
                    f"{variable.name} of shape {tuple(variable.shape)}"
                )
        return arrays

    def bound(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        return self._machine.bound(gradients)

    def draw_noise(
        self, shapes: Sequence[Any], seed: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        if self.guarantee == "published":
            return self._machine.draw_noise(shapes, seed, step)
        return self._machine.draw_noise(shapes, seed)

    def refine(self, noised: list[tf.Tensor], step: tf.Tensor) -> list[tf.Tensor]:
        del step
        return self._machine.refine(noised)

    def claim(self, num_parameters: int, examples_per_microbatch: int = 1) -> Claim:
        """See `Mechanism.claim`.

        If published, `proven` is what is known before anything has run: a quietest
        coordinate may have no noise at all. What has run is in `recorded_events`.
        """
        del num_parameters
        if self.guarantee == "proven":
            return Claim(
                gaussian_release(self.noise_multiplier, 1.0, examples_per_microbatch)
            )
        budget = self._effective_budget
        if self.direction == "uniform" and self.pruning_ratio is None:
            # Equal weights make Eq. 11 to 13 isotropic: what is left of the
            # paper's error is its amplification, which is the accountant's to do.
            return Claim(
                gaussian_release(
                    budget.isotropic_multiplier, 1.0, examples_per_microbatch
                )
            )
        published = events.GaussianRelease(budget.isotropic_multiplier)
        return Claim(
            proven=self._step_event(0.0),
            published=(
                events.ComposedRelease(
                    (
                        events.FullBatchRelease(
                            events.GaussianRelease(budget.direction_multiplier)
                        ),
                        published,
                    )
                )
                if self.direction == "gradient"
                else published
            ),
            caveat=_CAVEAT if self.pruning_ratio is None else _PRUNING_CAVEAT,
        )

    def recorded_events(
        self, examples_per_microbatch: int
    ) -> list[tuple[events.Event, int]] | None:
        """What the executed releases cost, where that is known only afterwards.

        An odometer reading: noise that depends on what was released before is
        composed as it turned out. It is no promise that could have been made in
        advance, which `claim` says (none).

        Args:
            examples_per_microbatch: As in `claim`. No default: to forget it would
                be to report half of what several examples cost.

        Returns:
            `(event, count)` for all releases so far, each with the least noise that
            was drawn, rounded down; `None` where `claim` says it all.
        """
        if self.guarantee == "proven" or self._machine is None:
            return None
        counts = self._machine.multiplier_counts()
        recorded = [
            (self._step_event(multiplier, examples_per_microbatch), count)
            for multiplier, count in counts
        ]
        unused = self._machine.direction_releases() - sum(n for _, n in counts)
        if unused > 0:
            recorded.append((self._direction_event(), unused))
        return recorded

    def _step_event(
        self, multiplier: float, examples_per_microbatch: int = 1
    ) -> events.Event:
        release = gaussian_release(multiplier, 1.0, examples_per_microbatch)
        if self.direction != "gradient":
            return release
        return events.ComposedRelease((self._direction_event(), release))

    def _direction_event(self) -> events.Event:
        return events.FullBatchRelease(
            events.GaussianRelease(self._effective_budget.proven_direction_multiplier)
        )

    def published_epsilon(self, releases: int) -> float | None:
        """The epsilon that the paper would print after so many releases.

        At the budget's own delta, by Eq. 7 and the claimed amplification, which is
        not a theorem. `None` if `guarantee="proven"`.
        """
        if self.guarantee == "proven":
            return None
        return self._effective_budget.published_epsilon(releases)

    def release_direction(
        self, gradient: Sequence[tf.Tensor], seed: tf.Tensor, step: int
    ) -> None:
        """Lines 4 and 5 of Algorithm 1: clips and noises the full-batch gradient.

        Args:
            gradient: For each variable, the mean gradient over *all* examples.
            seed: `int32[2]`, never used before.
            step: The number of releases so far; the direction serves the next.
        """
        self._require_direction("release_direction")
        if self._machine.direction_source is None:
            self._machine.direction_source = "release_direction"
        self._machine.release_direction(gradient, seed, step)

    def has_direction_for(self, step: int) -> bool:
        """Whether `release_direction` has been called for this release."""
        self._require_direction("has_direction_for")
        return self._machine.has_direction_for(step)

    @property
    def releases_data(self) -> bool:
        """Pruning as printed does."""
        return self.guarantee == "published" and self.pruning_ratio is not None

    @property
    def needs_direction(self) -> bool:
        """Whether every release must be preceded by `release_direction`."""
        return self.guarantee == "published" and self.direction == "gradient"

    def _require_direction(self, method: str) -> None:
        if not self.needs_direction or self._machine is None:
            raise ValueError(
                f"`{method}` belongs to a mechanism that is built, with "
                'guarantee="published" and direction="gradient". Received: '
                f"guarantee={self.guarantee!r}, direction={self.direction!r}, "
                f"built={self._machine is not None}"
            )


def _plain_direction(direction: Any) -> Any:
    """A name, or plain lists and numbers that survive JSON."""
    if isinstance(direction, str):
        if direction not in _NAMED_DIRECTIONS:
            raise ValueError(
                f"Argument `direction` must be one of {_NAMED_DIRECTIONS}, or public "
                f"weights. Received: direction={direction!r}"
            )
        return direction
    if isinstance(direction, Mapping):
        return {key: np.asarray(value).tolist() for key, value in direction.items()}
    if isinstance(direction, Sequence):
        return [np.asarray(value).tolist() for value in direction]
    raise ValueError(
        f"Argument `direction` must be one of {_NAMED_DIRECTIONS}, a list or a "
        f"dictionary. Received: direction={direction}"
    )


def _by_variable(weights: Mapping[str, Any], variables: Sequence[Any]) -> list[Any]:
    """Orders a dictionary by variables, by path or by name."""
    unused = set(weights)
    ordered = []
    for variable in variables:
        key = next((k for k in (variable.path, variable.name) if k in weights), None)
        unused.discard(key)
        ordered.append(1.0 if key is None else weights[key])
    if unused:
        raise ValueError(
            "Argument `direction` must name trainable variables, among "
            f"{[variable.path for variable in variables]}. "
            f"Received also: {sorted(unused)}"
        )
    return ordered
