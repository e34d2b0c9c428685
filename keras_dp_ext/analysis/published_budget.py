"""The noise that Xiang et al. derive from a budget, exactly as they print it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any


@dataclasses.dataclass(frozen=True)
class PublishedBudget:
    """A total budget and how Algorithm 1 spends it.

    Everything here is as *published*. It is not a guarantee: amplification by
    `(epsilon / q, delta / q)` is not a theorem, and the sensitivity of the
    direction is twice what line 2 uses.

    Attributes:
        epsilon: Total budget of the training.
        delta: Total failure probability.
        sampling_rate: `q`, lot size over number of examples.
        steps: `k`, how many lots are released.
        split: Share of epsilon and delta that goes to the direction `w`.
    """

    epsilon: float
    delta: float
    sampling_rate: float
    steps: int
    split: float = 1 / 8

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise ValueError(
                f"Argument `epsilon` must be positive. Received: epsilon={self.epsilon}"
            )
        if not 0 < self.delta < 1:
            raise ValueError(
                f"Argument `delta` must be in (0, 1). Received: delta={self.delta}"
            )
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(
                "Argument `sampling_rate` must be in (0, 1]. "
                f"Received: sampling_rate={self.sampling_rate}"
            )
        if not self.steps >= 1:
            raise ValueError(
                f"Argument `steps` must be at least 1. Received: steps={self.steps}"
            )
        if not 0 <= self.split < 1:
            raise ValueError(
                f"Argument `split` must be in [0, 1). Received: split={self.split}"
            )

    @property
    def gradient_epsilon(self) -> float:
        """What is left for the gradients, before the claimed amplification."""
        return (1 - self.split) * self.epsilon

    @property
    def gradient_delta(self) -> float:
        """What is left for the gradients, before the claimed amplification."""
        return (1 - self.split) * self.delta

    @property
    def gradient_tau(self) -> float:
        """`tau(epsilon_g / q, delta_g / q)`, the squared signal-to-noise ratio."""
        return best_tau(
            self.gradient_epsilon / self.sampling_rate,
            self.gradient_delta / self.sampling_rate,
            self.steps,
        )

    @property
    def direction_tau(self) -> float:
        """`tau(epsilon_w, delta_w)`; zero where nothing is spent on `w`."""
        if self.split == 0:
            return 0.0
        return best_tau(self.split * self.epsilon, self.split * self.delta, self.steps)

    @property
    def isotropic_multiplier(self) -> float:
        """Noise over sensitivity of the gradients for `w = 1`."""
        return self.gradient_tau**-0.5

    @property
    def direction_multiplier(self) -> float:
        """Noise over `alpha` of the released direction (line 2)."""
        return self.direction_tau**-0.5 if self.split else math.inf

    @property
    def proven_direction_multiplier(self) -> float:
        """The same over the true sensitivity.

        `w` is clipped to `alpha` after averaging, so one example can move it from
        one side of the ball to the other: its sensitivity is `2 * alpha`.
        """
        return self.direction_multiplier / 2

    def published_epsilon(self, steps: int) -> float:
        """The epsilon that the paper's accounting gives to the first `steps` lots.

        Eq. 7 solved for epsilon at the executed number of steps, for gradients
        and direction, each at its share of delta. At `self.steps` it is
        `self.epsilon`, up to the tightness of the integer beta.
        """
        total = self.sampling_rate * _epsilon_of(
            self.gradient_tau, self.gradient_delta / self.sampling_rate, steps
        )
        if self.split:
            total += _epsilon_of(self.direction_tau, self.split * self.delta, steps)
        return total

    def serialize(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return dataclasses.asdict(self)


def published_budget(
    epsilon: float,
    delta: float,
    num_examples: int,
    lot_size: int,
    epochs: float,
    split: float = 1 / 8,
) -> PublishedBudget:
    """A `PublishedBudget` from the quantities of the paper's Table 1.

    Example: LeNet on MNIST.

    >>> budget = published_budget(1.0, 1e-5, 55_000, lot_size=512, epochs=60)
    >>> round(budget.gradient_tau, 4), round(budget.isotropic_multiplier, 2)
    (0.0135, 8.61)
    """
    return PublishedBudget(
        epsilon=epsilon,
        delta=delta,
        sampling_rate=lot_size / num_examples,
        steps=math.ceil(epochs * num_examples / lot_size),
        split=split,
    )


def best_tau(epsilon: float, delta: float, steps: int) -> float:
    """The greatest `tau = 2 (epsilon + ln(delta) / beta) / (k (1 + beta))`.

    Over positive integers beta (Eq. 7 admits no others). `tau` rises and then
    falls with beta; the real optimum solves a quadratic, so that one of its two
    integer neighbours is best.

    Raises:
        ValueError: If no beta gives a positive tau, which takes delta >= 1.
    """
    if not 0 < delta < 1:
        raise ValueError(
            "The share of delta, divided by the sampling rate, must be in (0, 1): "
            "the published amplification is void there. "
            f"Received: delta={delta}"
        )
    log_inverse_delta = -math.log(delta)
    # d tau / d beta = 0  <=>  epsilon beta^2 - 2 L beta - L = 0, L = ln(1/delta).
    optimum = (
        log_inverse_delta
        + math.sqrt(log_inverse_delta**2 + epsilon * log_inverse_delta)
    ) / epsilon
    candidates = {max(1, math.floor(optimum)), math.floor(optimum) + 1}
    return max(
        2 * (epsilon - log_inverse_delta / beta) / (steps * (1 + beta))
        for beta in candidates
    )


def _epsilon_of(tau: float, delta: float, steps: int) -> float:
    """Least `steps tau (1 + beta) / 2 - ln(delta) / beta` over integers beta."""
    if steps == 0:
        return 0.0
    log_inverse_delta = -math.log(delta)
    optimum = math.sqrt(2 * log_inverse_delta / (steps * tau))
    candidates = {max(1, math.floor(optimum)), math.floor(optimum) + 1}
    return min(
        steps * tau * (1 + beta) / 2 + log_inverse_delta / beta for beta in candidates
    )
