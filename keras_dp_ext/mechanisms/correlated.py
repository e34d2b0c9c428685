"""DP-SGD with correlated noise: BandMF, DP-FTRL and BLT, by the names that they have."""

from __future__ import annotations

from typing import Any

from keras_dp_ext.accounting.training_plan import TrainingPlan
from keras_dp_ext.bounding.l2_clip import L2Clip
from keras_dp_ext.mechanisms.by_multiplier import ByMultiplier
from keras_dp_ext.noise import (
    Banded,
    BandedInverse,
    BufferedToeplitz,
    CorrelatedNoise,
    TreeAggregation,
)


class _Correlated(ByMultiplier):
    """Clips each row and adds correlated noise to the sums."""

    def __init__(
        self, l2_norm_clip: float, noise_multiplier: float, noise: CorrelatedNoise
    ):
        bound = L2Clip(l2_norm_clip)
        super().__init__(l2_norm_clip, noise_multiplier, bound, noise)


class BandMF(_Correlated):
    """Clips each row and adds noise that is correlated over `bands` releases.

    Train on `dp.data.cyclic_poisson_batches(..., cycle=bands)`, or without amplification
    on `dp.data.fixed_order_batches`. See `dp.noise.Banded`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Noise over `C`, relative to one participation: epsilon is that
            of DP-SGD with this multiplier, a `bands`-th of the steps and `bands` times
            the sampling rate.
        bands: Releases over which noise is correlated. 1 is DP-SGD.
        steps: Number of updates for which the bands are optimised.
        strategy_momentum: Momentum of the optimizer, for which they are optimised.

    Example:

    >>> mechanism = BandMF(bands=4, steps=20, noise_multiplier=1.1)
    >>> mechanism.cycle, mechanism.default_sampling
    (4, 'cyclic-poisson')

    References:
        Choquette-Choo et al., "(Amplified) Banded Matrix Factorization" (2023).
    """

    name = "bandmf"
    default_sampling = "cyclic-poisson"

    def __init__(
        self,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        bands: int = 16,
        steps: int = 1000,
        strategy_momentum: float = 0.0,
    ):
        noise = Banded(bands, steps, momentum=strategy_momentum)
        super().__init__(l2_norm_clip, noise_multiplier, noise)
        self.bands = bands
        self.steps = steps
        self.strategy_momentum = strategy_momentum

    @classmethod
    def planned_arguments(cls, plan: TrainingPlan) -> dict[str, Any]:
        return {"steps": max(1, plan.required_releases())}

    @property
    def cycle(self) -> int:
        return self.bands


class DPFTRL(_Correlated):
    """Clips each row and adds noise by tree aggregation.

    Needs no random sampling: train on `dp.data.fixed_order_batches`, or on shuffled data
    with a tree for each pass (`restart_every`). See `dp.noise.TreeAggregation`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Noise of a node of the tree, over `C`.
        restart_every: A new tree begins after this many updates. `None`: never.

    Example:

    >>> DPFTRL(noise_multiplier=8.0, restart_every=100).noise
    TreeAggregation(scale=8.0, restart_every=100)

    References:
        Kairouz et al., "Practical and Private (Deep) Learning without Sampling or
        Shuffling" (2021).
    """

    name = "dpftrl"
    default_sampling = "fixed-order"

    def __init__(
        self,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 10.0,
        restart_every: int | None = None,
    ):
        noise = TreeAggregation(restart_every=restart_every)
        super().__init__(l2_norm_clip, noise_multiplier, noise)
        self.restart_every = restart_every


class BLT(_Correlated):
    """Clips each row and adds noise of buffered linear Toeplitz matrices.

    Needs no random sampling: train on `dp.data.fixed_order_batches`. See
    `dp.noise.BufferedToeplitz`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Standard deviation of the independent draws, over `C`.
        buffers: Decaying sums of past noise that are kept.
        steps: Number of updates for which they are optimised.
        separation: Updates in a pass over the data, for which they are optimised.
        strategy_momentum: Momentum of the optimizer, for which they are optimised.

    Example:

    >>> mechanism = BLT(buffers=2, steps=20, separation=10, noise_multiplier=8.0)
    >>> mechanism.noise_multiplier, mechanism.default_sampling
    (8.0, 'fixed-order')

    References:
        Dvijotham et al., "Efficient and Near-Optimal Noise Generation for Streaming
        Differential Privacy" (2024).
    """

    name = "blt"
    default_sampling = "fixed-order"

    def __init__(
        self,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 10.0,
        buffers: int = 3,
        steps: int = 1000,
        separation: int | None = None,
        strategy_momentum: float = 0.0,
    ):
        noise = BufferedToeplitz(buffers, steps, separation, momentum=strategy_momentum)
        super().__init__(l2_norm_clip, noise_multiplier, noise)
        self.buffers = buffers
        self.steps = steps
        self.separation = separation
        self.strategy_momentum = strategy_momentum

    @classmethod
    def planned_arguments(cls, plan: TrainingPlan) -> dict[str, Any]:
        return {
            "steps": max(1, plan.required_releases()),
            "separation": plan.steps_per_epoch,
        }


class BandInv(_Correlated):
    """Clips each row and adds noise that is drawn again from `bands` seeds.

    Needs no random sampling and no memory: train on `dp.data.fixed_order_batches`. See
    `dp.noise.BandedInverse`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Standard deviation of the independent draws, over `C`.
        bands: Draws of which the noise of a release is made.

    Example:

    >>> mechanism = BandInv(bands=4, noise_multiplier=8.0)
    >>> mechanism.noise_multiplier, mechanism.default_sampling
    (8.0, 'fixed-order')

    References:
        Kalinin, McMahan, Upadhyay, Lampert, "Back to Square Roots" (2025).
    """

    name = "bandinv"
    default_sampling = "fixed-order"

    def __init__(
        self,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 10.0,
        bands: int = 16,
    ):
        super().__init__(l2_norm_clip, noise_multiplier, BandedInverse(bands))
        self.bands = bands
