"""Moments of the likelihood ratio of one shifted coordinate, by quadrature in logs.

For a symmetric density z and a shift tau, with L(x) = z(x - tau) / z(x),

    M_k(tau) = E_{x ~ z}[L(x)**k],    k > 1,

is what Lemma 4 of Nasr et al. multiplies over the coordinates. Since L has mean 1
under z,

    M_k(tau) - 1 = E_z[L**k - 1 - k (L - 1)],

whose integrand is nonnegative by Bernoulli's inequality. Integrating this form
keeps full relative accuracy where M_k is barely above 1, which is the case for
every coordinate of a large model.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from keras_dp_ext.noise import Noise

# Each panel is compared with its two halves; a difference of this part of the
# whole integral is accepted, and added to the result.
_TOLERANCE = 1e-9
_ROUNDS = 40
_MAX_OCTAVES = 400
# Gauss-Legendre with the two ends of the panel as nodes of weight 0, so that a
# narrow peak at an end is seen even if all inner nodes miss it.
_NODES, _WEIGHTS = (
    np.concatenate([[end], inner, [end * sign]])
    for inner, end, sign in zip(
        np.polynomial.legendre.leggauss(10), (-1.0, 0.0), (-1.0, 1.0), strict=True
    )
)

_LEFT, _MIDDLE, _RIGHT = 0, 1, 2


class MomentError(ArithmeticError):
    """A moment could not be bounded. Nothing smaller is ever returned."""


def log_moments(noise: Noise, shifts: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Upper bounds on log M_k(tau), with relative error about 1e-8.

    Args:
        noise: The density z. Symmetric; smooth except at zero.
        shifts: Positive shifts tau, in the units of `noise`.
        powers: Real powers k, each above 1.

    Returns:
        Array of shape `[len(shifts), len(powers)]`.

    Raises:
        MomentError: If the density is not normalised, or an integral does not
            converge.

    Example:

    >>> from keras_dp_ext.noise import Gaussian
    >>> log_moments(Gaussian(2.0), [1.0], [3]).round(6)  # k (k-1) tau^2 / (2 s^2)
    array([[0.75]])
    """
    check_density(noise)
    shifts = np.atleast_1d(np.asarray(shifts, np.float64))
    powers = np.atleast_1d(np.asarray(powers, np.float64))
    if not (np.all(shifts > 0) and np.all(powers > 1)):
        raise ValueError(
            "Arguments `shifts` must be positive and `powers` above 1. "
            f"Received: shifts={shifts}, powers={powers}"
        )
    # About 2**20 integrand values at a time stay in the processor's cache.
    step = max(1, 2**20 // (300 * powers.size))
    return np.concatenate(
        [
            _integrate(_Integrand(noise, shifts[i : i + step], powers))
            for i in range(0, shifts.size, step)
        ]
    )


@functools.lru_cache(maxsize=64)
def check_density(noise: Noise) -> None:
    """Raises unless `noise.log_density` is a symmetric unimodal density.

    The identity in the module's docstring rests on the integral being 1, and
    that larger shifts cost more on symmetry and unimodality.
    """
    edges = noise.scale * np.concatenate([[0.0], 2.0 ** np.arange(-12, 120, 0.25)])
    x, weights = _panel_nodes(edges[:-1], edges[1:])
    log_density = noise.log_density(x)
    mass = 2.0 * np.sum(weights * np.exp(log_density))
    symmetric = np.allclose(
        log_density, noise.log_density(-x), rtol=1e-12, atol=1e-12, equal_nan=True
    )
    ordered = log_density[:, 1:-1].ravel()
    unimodal = bool(np.all(ordered[1:] <= ordered[:-1] + 1e-12))
    if not (symmetric and unimodal and abs(mass - 1.0) < 1e-8):
        raise MomentError(
            "The noise's `log_density` must be symmetric, unimodal and integrate to "
            f"1. Received: noise={noise}, symmetric={symmetric}, "
            f"unimodal={unimodal}, integral={mass}"
        )


def _panel_nodes(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights of each panel: `[panels, nodes]`."""
    half = 0.5 * (ends - starts)[:, None]
    return starts[:, None] + half * (1.0 + _NODES), half * _WEIGHTS


@dataclasses.dataclass
class _Integrand:
    """z (L**k - 1 - k (L - 1)) for a group of shifts and powers.

    The line is cut at 0 and at tau, where the density may have kinks, into
    x = -p, x = tau p and x = tau + p.
    """

    noise: Noise
    shifts: np.ndarray
    powers: np.ndarray

    def log_panels(
        self, sides: np.ndarray, starts: np.ndarray, ends: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of the integral over each panel and of its length times the
        greatest value seen, both `[shifts, panels, powers]`."""
        p, weights = _panel_nodes(starts, ends)
        tau = self.shifts[:, None, None]
        side = sides[:, None]
        x = np.choose(side, [-p + 0 * tau, tau * p, tau + p])
        shifted = np.choose(side, [-p - tau, tau * (p - 1.0), p + 0 * tau])
        stretch = np.where(side == _MIDDLE, tau, 1.0)
        log_z = self.noise.log_density(x)
        with np.errstate(invalid="ignore"):
            log_ratio = self.noise.log_density(shifted) - log_z
            values = log_z[..., None] + _log_excess(log_ratio, self.powers)
        if not np.all(values < np.inf):
            raise MomentError(
                "The likelihood ratio is infinite or undefined. "
                f"Received: noise={self.noise}"
            )
        top = np.max(values, axis=2)
        base = np.where(np.isfinite(top), top, 0.0)
        scaled = np.exp(values - base[:, :, None])
        with np.errstate(divide="ignore"):
            sums = np.einsum("tpn,tpnk->tpk", stretch * weights, scaled)
            integral = base + np.log(sums)
            ceiling = top + np.log(stretch * (ends - starts)[:, None])
        return integral, ceiling


def _log_excess(log_ratio: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """log(L**k - 1 - k (L - 1)) for every power, without cancellation."""
    ell = log_ratio[..., None]
    u = powers * ell
    # For L**k up to e the linear terms of both exponentials cancel exactly.
    small_u = np.minimum(u, 1.0)
    small_ell = np.minimum(ell, 1.0)
    small = _exp_minus_tangent(small_u) - powers * _exp_minus_tangent(small_ell)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_small = np.log(np.maximum(small, 0.0))
        rest = (powers - 1.0) * np.exp(-u) - powers * np.exp(ell - u)
        log_large = u + np.log1p(rest)
    return np.where(u > 1.0, log_large, log_small)


def _exp_minus_tangent(u: np.ndarray) -> np.ndarray:
    """exp(u) - 1 - u, accurate near 0."""
    v = np.clip(u, -0.5, 0.5)
    series = np.ones_like(v)
    for n in range(14, 2, -1):
        series = 1.0 + v / n * series
    return np.where(np.abs(u) < 0.5, 0.5 * v * v * series, np.expm1(u) - u)


def _integrate(integrand: _Integrand) -> np.ndarray:
    """Adaptive quadrature; all shifts and powers share the panels."""
    sides, starts, ends, panels, tail = _initial_panels(integrand)
    done = np.full(tail.shape, -np.inf)
    error = np.zeros(tail.shape)
    for _ in range(_ROUNDS):
        middle = 0.5 * (starts + ends)
        sides = np.repeat(sides, 2)
        starts = np.column_stack([starts, middle]).ravel()
        ends = np.column_stack([middle, ends]).ravel()
        halves, ceilings = integrand.log_panels(sides, starts, ends)
        pairs = np.logaddexp(halves[:, ::2], halves[:, 1::2])
        total = np.logaddexp(done, _log_sum(pairs))[:, None]
        difference = np.abs(np.exp(pairs - total) - np.exp(panels - total))
        # A small difference proves nothing if all nodes missed a narrow peak: the
        # panel must be resolved in its own right, or negligible even at its top.
        resolved = difference <= 1e-3 * np.exp(pairs - total)
        top = np.maximum(ceilings[:, ::2], ceilings[:, 1::2]) - total
        negligible = top <= np.log(_TOLERANCE)
        accepted = np.all(
            (difference <= _TOLERANCE) & (resolved | negligible), axis=(0, 2)
        )
        done = np.logaddexp(done, _log_sum(pairs[:, accepted]))
        error += np.sum(difference[:, accepted], axis=1)
        active = np.repeat(~accepted, 2)
        if not np.any(active):
            excess = done + np.log1p(error + np.exp(tail - done) + _TOLERANCE)
            return np.logaddexp(0.0, excess)
        sides, starts, ends = sides[active], starts[active], ends[active]
        panels = halves[:, active]
    raise MomentError(
        f"The moments of {integrand.noise} did not converge for shifts up to "
        f"{integrand.shifts.max()} and powers up to {integrand.powers.max()}."
    )


def _initial_panels(integrand: _Integrand) -> tuple[np.ndarray, ...]:
    """Octaves on both sides, as far out as the integrand has weight.

    Returns:
        Side, start, end and integral of each panel, and a bound on what lies
        beyond the last: octaves that at least halve sum to less than the last.
    """
    edges = integrand.noise.scale * np.concatenate([[0.0], 2.0 ** np.arange(-2.0, 6.0)])
    octaves = edges.size - 1
    sides = np.repeat([_MIDDLE, _LEFT, _RIGHT], [1, octaves, octaves])
    starts = np.concatenate([[0.0], edges[:-1], edges[:-1]])
    ends = np.concatenate([[1.0], edges[1:], edges[1:]])
    panels, ceilings = integrand.log_panels(sides, starts, ends)
    last, before = ceilings[:, [octaves, -1]], ceilings[:, [octaves - 1, -2]]
    out = edges[-1]
    for _ in range(_MAX_OCTAVES):
        tail = np.logaddexp.reduce(last, axis=1)
        halving = np.all((last < before - np.log(2.0)) | (last == -np.inf))
        if halving and np.all(tail < np.log(1e-11) + _log_sum(panels)):
            return sides, starts, ends, panels, tail
        more = np.array([_LEFT, _RIGHT]), np.full(2, out), np.full(2, 2.0 * out)
        values, ceilings = integrand.log_panels(*more)
        sides, starts, ends = (
            np.concatenate(pair)
            for pair in zip((sides, starts, ends), more, strict=True)
        )
        panels = np.concatenate([panels, values], axis=1)
        last, before = ceilings, last
        out *= 2.0
    raise MomentError(
        f"The moments of {integrand.noise} are infinite or their tails too heavy: "
        f"shifts up to {integrand.shifts.max()}, powers up to "
        f"{integrand.powers.max()}."
    )


def _log_sum(panels: np.ndarray) -> np.ndarray:
    """logsumexp over panels, also over none of them."""
    return np.logaddexp.reduce(panels, axis=1, initial=-np.inf)
