"""Which noise has a proof on which sampling. What has none is refused."""

from __future__ import annotations

from keras_dp_ext.accounting.events import (
    CodebookRelease,
    ComposedRelease,
    CorrelatedRelease,
    Event,
    FullBatchRelease,
    GaussianRelease,
    NoiseRelease,
    ScheduledRelease,
)
from keras_dp_ext.accounting.sampling import (
    BallsInBins,
    CyclicPoisson,
    FixedOrder,
    FullBatch,
    Sampling,
    Shuffled,
)


def check_covered(event: Event, sampling: Sampling) -> None:
    """Raises unless the cost of an event on this sampling is known.

    Raises:
        ValueError: For correlated noise on a sampling that its proof does not cover, and
            for other than Gaussian noise on balls in bins.
    """
    if isinstance(event, CorrelatedRelease):
        _check_correlated(event, sampling)
    elif isinstance(sampling, BallsInBins) and not _is_gaussian(event):
        raise ValueError(
            "Balls in bins amplify Gaussian noise only, as far as is proven here. Train on "
            "`dp.data.poisson_batches`, or use Gaussian noise. "
            f"Received: {type(event).__name__} of {getattr(event, 'noise', event)}"
        )


def as_gaussian(event: Event) -> GaussianRelease | None:
    """The Gaussian release that an event is, if it is one."""
    if isinstance(event, (NoiseRelease, CodebookRelease)):
        return event.as_gaussian()
    return event if isinstance(event, GaussianRelease) else None


def _is_gaussian(event: Event) -> bool:
    """Whether all that is sampled has Gaussian noise."""
    if isinstance(event, (ComposedRelease, ScheduledRelease)):
        return all(_is_gaussian(part) for part in event.events)
    return isinstance(event, FullBatchRelease) or as_gaussian(event) is not None


def _check_correlated(event: CorrelatedRelease, sampling: Sampling) -> None:
    if isinstance(sampling, (FixedOrder, Shuffled, FullBatch)):
        return
    bands, name = event.noise.strategy_bands, type(event.noise).__name__
    if isinstance(sampling, CyclicPoisson) and bands is not None:
        if bands <= sampling.cycle:
            return
        raise ValueError(
            f"Noise of {bands} bands needs a cycle of at least as many releases: pass "
            f"`cycle={bands}` to `dp.data.cyclic_poisson_batches`, or use "
            f"`bands={sampling.cycle}`. Received: {sampling.describe()}"
        )
    remedy = "`dp.data.fixed_order_batches`"
    if bands is not None:
        remedy = f"`dp.data.cyclic_poisson_batches(..., cycle={bands})` or {remedy}"
    raise ValueError(
        f"What {name} noise costs on this sampling is not proven: noise that is "
        "correlated over releases needs to know how far apart an example's "
        f"participations are. Train on {remedy}. Received: {sampling.describe()}"
    )
