"""The figures that a ledger can be asked for: proven, published, had it been Poisson."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from keras_dp_ext._checks import check_one_of
from keras_dp_ext.accounting import accountants
from keras_dp_ext.accounting.records import LedgerEntry

#: What a ledger can be asked for; see `Ledger.epsilon`.
FIGURES = ("proven", "published", "if_poisson")


def figure_entries(
    entries: Iterable[LedgerEntry], figure: str
) -> list[accountants.Entry]:
    """The events that a figure of `Ledger.epsilon` is about."""
    check_one_of("figure", figure, FIGURES)
    if figure == "proven":
        return [(claim.proven, sampling, n) for claim, sampling, n in entries]
    return [
        (
            claim.published or claim.proven if figure == "published" else claim.proven,
            # Correlated noise is not made for Poisson samples.
            sampling if claim.proven.is_run else sampling.if_poisson(),
            count,
        )
        for claim, sampling, count in entries
    ]


def figure_epsilon(
    entries: Iterable[LedgerEntry],
    figure: str,
    delta: float,
    accountant: str = "rdp",
    **options: Any,
) -> float:
    """One of the figures of `Ledger.epsilon`.

    Args:
        entries: What was claimed, how it was sampled, how many times.
        figure: "proven", "published" or "if_poisson".
        delta: Target delta.
        accountant: "rdp" or "pld"; see `figure_accounting`.
        **options: Passed on to the accountant.

    Returns:
        Epsilon, possibly infinite.

    Example: Amian's setting on MNIST, proven and as the paper prints it.

    >>> from keras_dp_ext.accounting import Claim, GaussianRelease, Poisson
    >>> claim = Claim(GaussianRelease(1.1), published_conversion="classic")
    >>> entries = [(claim, Poisson(256 / 60_000), 60 * 234)]
    >>> round(figure_epsilon(entries, "proven", delta=1e-5), 3)
    2.594
    >>> round(figure_epsilon(entries, "published", delta=1e-5), 3)
    3.006
    """
    entries = list(entries)
    accountant, options = figure_accounting(entries, figure, accountant, **options)
    return accountants.epsilon(
        figure_entries(entries, figure), delta, accountant, **options
    )


def figure_accounting(
    entries: Iterable[LedgerEntry], figure: str, accountant: str, **options: Any
) -> tuple[str, dict[str, Any]]:
    """The accountant of a figure, and its options.

    The published figure is what the paper prints, whatever accountant is asked for.
    Our papers count in RDP: Nasr et al. (Lemma 2) and Amian (Section II.B) convert by
    Mironov (2017), Proposition 3, and the tail bound of Abadi et al. (Theorem 2) is
    the same formula, with lambda for the order minus 1. Xiang et al. have an
    accounting of their own (`Mechanism.published_epsilon`).
    """
    named = {c.published_conversion for c, _, _ in entries} - {None}
    if figure != "published" or not named:
        return accountant, options
    # Where papers differ, the looser conversion holds for both.
    return "rdp", {"conversion": "classic" if "classic" in named else named.pop()}
