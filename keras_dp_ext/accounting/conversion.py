"""From RDP at many orders to one (epsilon, delta)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from keras_dp_ext._checks import check_in, check_one_of

CONVERSIONS = ("tight", "classic")


def epsilon_from_rdp(
    orders: npt.ArrayLike,
    rdp: npt.ArrayLike,
    delta: float,
    conversion: str = "tight",
) -> tuple[float, float]:
    """The least epsilon over the orders, and the order that gives it.

    Args:
        orders: Orders above 1.
        rdp: RDP at each order.
        delta: Target delta in [0, 1].
        conversion: "tight" (Canonne, Kamath, Steinke, 2020, Proposition 12), or
            "classic", the papers' own epsilon = rdp + log(1 / delta) / (order - 1)
            (Nasr et al., Lemma 2).

    Returns:
        Epsilon (possibly infinite) and the order.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> epsilon_from_rdp([2.0, 4.0], [0.1, 0.2], delta=1e-5, conversion="classic")[1]
    4.0
    """
    check_in("delta", delta, "[0, 1]")
    orders, rdp = np.asarray(orders, float), np.asarray(rdp, float)
    check_one_of("conversion", conversion, CONVERSIONS)
    if orders.shape != rdp.shape or not orders.size or not np.all(orders > 1):
        raise ValueError(
            "Argument `orders` must be above 1, one for each RDP value. "
            f"Received: orders={orders}"
        )
    if not np.all(rdp >= 0):
        raise ValueError(f"Argument `rdp` must not be negative. Received: rdp={rdp}")
    if delta == 1 or not np.any(rdp):
        return 0.0, float(orders[0])
    if delta == 0:
        return math.inf, float(orders[-1])
    if conversion == "tight":
        import dp_accounting

        epsilon, order = dp_accounting.rdp.compute_epsilon(orders, rdp, delta)
        return float(epsilon), float(order)
    # dp_accounting has no other conversion.
    epsilons = rdp - math.log(delta) / (orders - 1.0)
    best = int(np.argmin(epsilons))
    return max(0.0, float(epsilons[best])), float(orders[best])
