"""How many slots a Poisson lot needs, and what an overflow costs in delta.

A Poisson lot has a random size, a compiled training step a fixed one. The lot is
put into `capacity` slots; the empty ones are padding of weight zero, and if more
examples are drawn than there are slots, a uniformly random subset is dropped.

**What dropping costs.** Let D' = D + {z}, and S the examples of D that one step
draws. Let p = P(|S| >= capacity). Split the output of the step by that event,
which has the same probability under both data sets:

    under D:  Q = (1-p) Q0 + p Q1,      under D':  P = (1-p) P0 + p P1.

1. If |S| < capacity, S + {z} fits. Slots are uniformly random, so one may draw
   those of S first and then, if z is drawn, one more for z among those left: z
   replaces one padding row and moves nobody. (P0, Q0) is therefore a mixture of
   pairs of the ideal sampled mechanism, and dominated by it. This also holds for
   microbatches of several examples, of which exactly one changes; with lots that
   are filled from the front, z would move its successors into other microbatches.
2. If |S| >= capacity, then P1 and Q1 differ only if z is drawn: their total
   variation distance is at most the rate q.

Replace P1 by Q1. This moves P by at most p q in total variation, and what remains,
(1-p) P0 + p Q1 against (1-p) Q0 + p Q1, is dominated by the ideal mechanism. For
the other direction replace Q1 by P1. Hence, over T adaptively composed steps,

    delta_with_capacity(epsilon) <= delta_ideal(epsilon) + T p q,

in both directions. (Bounding the overflow alone, without using that z must be drawn
as well, would give T p (1 + exp(epsilon)).) `overflow_delta` is p q.

**An exact analysis** of Gaussian noise is in `accounting/pld.py`: p is `overflow_delta / q`. It
spares most of the T p q that is added, which with the default capacity (p q of at most
1e-12) is 0.009% of epsilon after 14,040 steps at noise 1.1, rate 256 / 60,000 and delta 1e-5;
lots that are often full have a finite epsilon by it alone.
"""

from __future__ import annotations

import math

from scipy import stats

# Slots of a batch are rounded up to a multiple of this, so that 2, 4 or 8 replicas get
# equal parts.
_ROUND_TO = 8


def overflow_delta(num_examples: int, rate: float, capacity: int) -> float:
    """The delta that one release adds because a lot has `capacity` slots.

    Args:
        num_examples: Size of the smaller of two neighbouring data sets.
        rate: Poisson sampling rate `q`.
        capacity: Number of slots.

    Returns:
        `q * P(Binomial(num_examples, q) >= capacity)`.
    """
    return rate * float(stats.binom.sf(capacity - 1, num_examples, rate))


def smallest_capacity(num_examples: int, rate: float, max_delta: float) -> int:
    """The least number of slots with `overflow_delta <= max_delta`.

    Example:

    >>> smallest_capacity(num_examples=60_000, rate=256 / 60_000, max_delta=1e-12)
    362
    """
    if not 0.0 < max_delta < 1.0:
        raise ValueError(
            "Argument `max_overflow_delta` must be between 0 and 1. "
            f"Received: max_overflow_delta={max_delta}"
        )
    # `num_examples + 1` slots hold every example and a neighbour's extra one.
    low, high = math.ceil(rate * num_examples), num_examples + 1
    while low < high:
        middle = (low + high) // 2
        if overflow_delta(num_examples, rate, middle) <= max_delta:
            high = middle
        else:
            low = middle + 1
    return low


def slots_for(capacity: int, accumulation_steps: int) -> int:
    """Slots of one batch, if that many batches hold a lot of `capacity`."""
    return _ROUND_TO * math.ceil(capacity / (_ROUND_TO * accumulation_steps))
