"""Our releases as events of dp_accounting, for those who want to check our figures."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from keras_dp_ext.accounting import accountants
from keras_dp_ext.accounting.sampling import BallsInBins


def to_dp_event(entries: Iterable[accountants.Entry]) -> Any:
    """The `dp_accounting.DpEvent` of all entries together.

    Compose it into any of dp_accounting's accountants that knows add-or-remove
    neighbours. Releases that share a lot are one event, amplified once; shuffled data
    are one Gaussian event for every pass.

    Lots of fixed capacity add a little to delta (`Poisson.overflow_delta`), for which
    dp_accounting has no event: a warning says at which delta to convert.

    Args:
        entries: Triples of event, sampling and number of releases.

    Raises:
        NotImplementedError: If dp_accounting has no event for a release or for its
            sampling.

    Example:

    >>> import dp_accounting
    >>> from keras_dp_ext.accounting import GaussianRelease, Poisson
    >>> event = to_dp_event([(GaussianRelease(1.1), Poisson(0.01), 1000)])
    >>> accountant = dp_accounting.rdp.RdpAccountant().compose(event)
    >>> round(float(accountant.get_epsilon(1e-5)), 2)
    1.71
    """
    import dp_accounting

    try:
        parts = accountants.pld_parts(entries)
        overflow = sum(part.count * part.sampling.overflow_delta for part in parts)
        if any(isinstance(part.sampling, BallsInBins) for part in parts):
            raise NotImplementedError("Received: balls in bins")
    except NotImplementedError as error:
        raise NotImplementedError(
            "dp_accounting has events for Gaussian noise under Poisson sampling, full "
            "batches and shuffled data only, among what is released here. For the "
            "others use our own accountant (`epsilon_rdp`, `ledger.epsilon`). "
            + str(error)[str(error).find("Received:") :]
        ) from error
    if overflow:
        warnings.warn(
            f"Lots of fixed capacity add {overflow:.3g} to delta, which this event does "
            f"not hold: ask for epsilon at delta - {overflow:.3g}.",
            stacklevel=3,
        )
    composed = [
        dp_accounting.SelfComposedDpEvent(_one(part.multiplier, part.rate), part.count)
        for part in parts
    ]
    if not composed:
        return dp_accounting.NoOpDpEvent()
    return (
        composed[0] if len(composed) == 1 else dp_accounting.ComposedDpEvent(composed)
    )


def _one(multiplier: float, rate: float) -> Any:
    import dp_accounting

    if multiplier == 0:
        return dp_accounting.NonPrivateDpEvent()
    gaussian = dp_accounting.GaussianDpEvent(multiplier)
    return (
        gaussian if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, gaussian)
    )
