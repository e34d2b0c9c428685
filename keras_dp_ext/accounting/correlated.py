"""What a run with correlated noise costs: as which independent releases it counts.

A run releases `C^-1 (C G + sigma Z)`, which tells as much as `C G + sigma Z`.

- **Without amplification** (data in a fixed order, shuffled data, the full data set): one
  Gaussian release of the matrix C G, with noise sigma over the sensitivity of
  `participation.py`. Gradients may depend on what was released before: Denisov et al. (2022),
  Theorem 2.1, for C lower triangular and Gaussian noise.
- **Cyclic Poisson sampling** (`dp.data.cyclic_poisson_batches`): the data are cut into
  b groups, release t draws from group t mod b, each of its examples with probability q'.
  If C has at most b bands, columns of releases in which an example may take part (b, 2b, ...
  apart) share no row: each is a Gaussian release by itself, of sensitivity the norm of the
  column, on a Poisson sample of the group. A run of n releases is at most
  ceil(n / b) releases of the sampled Gaussian mechanism at rate q': Choquette-Choo et al.
  (2023), 2306.08153, Theorem 4. With more bands the columns overlap, and the theorem is silent.

  A lot of fixed capacity adds to delta what it does in `data/sampling/capacity.py`, once
  for each release that draws from the example's group: given all other examples' draws, the
  releases whose lot would overflow are those that the example may be kept out of, at
  probability p q' each, and what remains is the run above on the other releases.

Adjacency is that of the sampling: in all of these an example is replaced by one that
contributes nothing ("zero-out"), as groups and orders depend on the number of examples.
"""

from __future__ import annotations

from keras_dp_ext.accounting import participation
from keras_dp_ext.accounting.coverage import check_covered
from keras_dp_ext.accounting.events import CorrelatedRelease, GaussianRelease
from keras_dp_ext.accounting.sampling import (
    CyclicPoisson,
    FixedOrder,
    FullBatch,
    Sampling,
    Shuffled,
)


def independent_releases(
    run: CorrelatedRelease, sampling: Sampling, releases: int
) -> tuple[GaussianRelease, Sampling, int]:
    """The releases without correlation that a run costs as much as, at most.

    Args:
        run: The run.
        sampling: How examples are chosen; the run begins with a pass or a cycle.
        releases: How many releases it has.

    Raises:
        ValueError: If no bound is proven for this noise on this sampling.

    Example:

    >>> from keras_dp_ext.noise import Banded, TreeAggregation
    >>> independent_releases(
    ...     CorrelatedRelease(1.1, Banded(bands=8)), CyclicPoisson(0.08, cycle=10), 995
    ... )[1:]
    (Poisson(rate=0.08, overflow_delta=0.0), 100)
    """
    check_covered(run, sampling)
    if isinstance(sampling, CyclicPoisson):
        # At most: fewer rows of a column are within the run.
        norm = participation.every(run.noise, releases, releases)
        return (
            _gaussian(run, norm),
            sampling.poisson(),
            sampling.participations(releases),
        )
    if isinstance(sampling, Shuffled):
        length = sampling.steps_per_epoch
        sensitivity = participation.once_per_pass(run.noise, releases, length)
    else:
        period = sampling.period if isinstance(sampling, FixedOrder) else 1
        sensitivity = participation.every(run.noise, releases, period)
    return _gaussian(run, sensitivity), FullBatch(), 1


def _gaussian(run: CorrelatedRelease, sensitivity: float) -> GaussianRelease:
    return GaussianRelease(run.noise_multiplier / sensitivity)
