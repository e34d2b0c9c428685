"""The figures that a ledger can be asked for: proven, published, had it been Poisson."""

from __future__ import annotations

from collections.abc import Iterable

from keras_dp_ext.accounting import accountants
from keras_dp_ext.accounting.records import LedgerEntry

#: What a ledger can be asked for; see `Ledger.epsilon`.
FIGURES = ("proven", "published", "if_poisson")


def figure_entries(
    entries: Iterable[LedgerEntry], figure: str
) -> list[accountants.Entry]:
    """The events that a figure of `Ledger.epsilon` is about."""
    if figure not in FIGURES:
        raise ValueError(
            f"Argument `figure` must be one of {FIGURES}. Received: figure={figure}"
        )
    if figure == "proven":
        return [(claim.proven, sampling, n) for claim, sampling, n in entries]
    return [
        (
            claim.published or claim.proven if figure == "published" else claim.proven,
            sampling.if_poisson(),
            count,
        )
        for claim, sampling, count in entries
    ]
