"""What several families of transfer functions need."""

from __future__ import annotations

from collections.abc import Sequence

from keras_dp_ext.verification.row_analysis.findings import RowsLostError
from keras_dp_ext.verification.row_analysis.values import Value


def only_rows(inputs: Sequence[Value], *numbers: int) -> None:
    """Raises unless only the named inputs hold examples."""
    for number, value in enumerate(inputs):
        if not value.is_constant and number not in numbers:
            raise RowsLostError(
                "takes data of the whole batch where a weight, a shape or an index "
                "belongs."
            )


def same_rows(values: Sequence[Value]) -> Value:
    """One of those that hold examples; raises unless all hold them in the same way."""
    with_rows = [value for value in values if value.has_rows]
    first = with_rows[0]
    for value in with_rows[1:]:
        if value.axis != first.axis or value.layout != first.layout:
            raise different_rows()
    return first


def different_rows() -> RowsLostError:
    return RowsLostError("brings different examples of the batch together.")


def along_batch(what: str) -> RowsLostError:
    return RowsLostError(f"{what} along the batch axis.")


def by_number() -> RowsLostError:
    return RowsLostError(
        "moves entries to places that are given by numbers, which may be those of "
        "another example."
    )


def needs_rank(*values: Value) -> None:
    if any(value.rank is None for value in values):
        raise RowsLostError("has inputs of unknown rank.", may_hide=False)


def integers(value: Value) -> list[int] | None:
    """The entries of a constant tensor, if all of them are known numbers."""
    if value.content is None:
        return None
    entries = value.content.reshape(-1).tolist()
    return entries if all(isinstance(entry, int) for entry in entries) else None


def known_axes(value: Value, rank: int) -> list[int]:
    """The entries of a constant tensor of axes; never negative."""
    axes = integers(value)
    if axes is None:
        raise RowsLostError("works along axes that are not known in advance.")
    return [axis % rank if rank else 0 for axis in axes]
