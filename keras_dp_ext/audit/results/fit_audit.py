"""The result of an audit through `fit`: what an example did, what was claimed."""

from __future__ import annotations

import dataclasses

from keras_dp_ext.audit.accounted import Accounted


@dataclasses.dataclass(frozen=True)
class FitAudit:
    """What one example did to a training, beside what the training claims.

    Attributes:
        shift: By how much one example moved a release, at most, in units of the
            claimed sensitivity: the claim holds up to 1.
        worst_example: Which of the examples did so.
        releases: How many releases there were, of all optimizers and layers.
        participations: In how many of them one example took part.
        lots: How many lots `keras_dp_ext.data` has drawn, or `None`.
        accounted: What the ledger pays for.
        leaks: What else depends on the example, and was not released with noise.
        reasons: Why the claim does not hold, in plain words; empty if it does.
        examples: Names of the examples that were tried.
        adjacency: "remove": the example was in the data or not. "zero-out": it took
            the place of one that contributes nothing.
    """

    shift: float
    worst_example: str
    releases: int
    participations: int
    lots: int | None
    accounted: Accounted
    leaks: tuple[str, ...]
    reasons: tuple[str, ...]
    examples: tuple[str, ...]
    adjacency: str

    #: The claimed sensitivity, in whose units `shift` is.
    claimed = 1.0

    @property
    def within_claim(self) -> bool:
        """Whether nothing was found that the claim does not cover."""
        return not self.reasons

    def __str__(self) -> str:
        known = self.accounted
        lines = [
            "within its claim" if self.within_claim else "CLAIM BROKEN",
            f"  shift of a release   {self.shift:.4g} of {self.claimed:g} claimed "
            f'(worst example: "{self.worst_example}")',
            f"  releases             {self.releases} seen, {known.releases} accounted",
            f"  participations       {self.participations} seen, "
            f"{known.participations} accounted",
        ]
        if self.lots is not None:
            lines.append(
                f"  lots                 {self.lots} drawn, {known.sampled_lots} "
                "accounted as sampled"
            )
        lines.append(
            f"  written from data    {', '.join(self.leaks) or 'nothing else'}"
        )
        lines += [f"  because {reason}" for reason in self.reasons]
        return "\n".join(lines)
