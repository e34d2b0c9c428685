"""What the analysis has found: where it can't tell that examples stay apart."""

from __future__ import annotations

import dataclasses

import tensorflow as tf


class RowsLostError(Exception):
    """Raised by a transfer function where an op may mix examples.

    Args:
        reason: In plain words; continues "op `name` (Type) ...".
        may_hide: Whether the effect can hide from a numerical test: the op is known
            to join examples, so that a condition behind it, or a factor close to zero,
            may keep it from being seen.
    """

    def __init__(self, reason: str, may_hide: bool = True):
        super().__init__(reason)
        self.reason = reason
        self.may_hide = may_hide


@dataclasses.dataclass(frozen=True)
class Finding:
    """An op behind which it is not known which example an entry belongs to.

    Attributes:
        op: The op, in the graph of its function.
        reason: Why, in plain words.
        path: Names of the calls and loops around it and of the op itself.
        may_hide: Whether a numerical test may miss the effect.
    """

    op: tf.Operation
    reason: str
    path: str
    may_hide: bool

    @property
    def layer(self) -> str:
        """The scopes in which the op was made: of models, layers and calls."""
        return "/".join(self.path.split("/")[:-1])

    def __str__(self) -> str:
        return f"op `{self.path}` ({self.op.type}) {self.reason}"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether the losses were proven to depend on one example each.

    Attributes:
        is_proven: Mixing is impossible, for all inputs.
        unknown: Where the proof failed, in the order of the ops.
    """

    is_proven: bool
    unknown: tuple[Finding, ...]

    @property
    def hidden(self) -> tuple[Finding, ...]:
        """Findings whose effect a numerical test may miss."""
        return tuple(finding for finding in self.unknown if finding.may_hide)
