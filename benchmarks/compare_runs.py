"""Compares two JSON files of `step_time` or `memory`; fails if something got worse.

    python -m benchmarks.compare_runs before.json after.json

A step got slower if its ratio to the plain step grew by more than `--tolerance`, and
the quartiles of both runs do not overlap: what differs from one round to the next of
the same run is noise. Ratios of processor time have no quartiles; they must have grown,
too. Peak memory is compared by its ratio to plain training alone.

Exit status: 0 if nothing got worse, 1 if something did, 2 if files don't fit.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple


class Change(NamedTuple):
    """One figure of both runs, as multiples of plain training."""

    name: str
    before: float
    after: float
    is_worse: bool

    def __str__(self) -> str:
        change = 100 * (self.after / self.before - 1)
        mark = "  WORSE" if self.is_worse else ""
        return (
            f"{self.name:32} {self.before:7.2f} {self.after:7.2f} {change:+6.0f}%{mark}"
        )


def compare(before: Any, after: Any, tolerance: float = 0.1) -> list[Change]:
    """The figures that both files have, in order.

    Args:
        before: What `step_time` or `memory` wrote.
        after: The same of a later run.
        tolerance: Growth that is always allowed, relative.

    Raises:
        ValueError: If the files have nothing in common.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        changes = _step_times(before, after, tolerance)
    elif isinstance(before, list) and isinstance(after, list):
        changes = _memory(before, after, tolerance)
    else:
        raise ValueError("One file is of `step_time`, the other one of `memory`.")
    if not changes:
        raise ValueError("The files have no workload and mechanism in common.")
    return changes


def _step_times(before: dict, after: dict, tolerance: float) -> list[Change]:
    changes = []
    for workload, variants in after.items():
        for name, row in variants.items():
            old = before.get(workload, {}).get(name)
            if old is None or name == "plain":
                continue
            _, _, old_upper = old["ratio"]
            _, lower, _ = row["ratio"]
            grew = all(
                new > (1 + tolerance) * former
                for former, new in (
                    (old["ratio"][0], row["ratio"][0]),
                    (old["cpu_ratio"], row["cpu_ratio"]),
                )
            )
            changes.append(
                Change(
                    f"{workload} {name}",
                    old["ratio"][0],
                    row["ratio"][0],
                    grew and lower > old_upper,
                )
            )
    return changes


def _memory(before: list, after: list, tolerance: float) -> list[Change]:
    ratios = {tuple(case): ratio for *case, _, ratio in before}
    return [
        Change(
            " ".join(map(str, case)),
            ratios[tuple(case)],
            ratio,
            ratio > (1 + tolerance) * ratios[tuple(case)],
        )
        for *case, _, ratio in after
        if tuple(case) in ratios and "plain" not in case
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.1)
    arguments = parser.parse_args(argv)
    try:
        changes = compare(
            json.loads(arguments.before.read_text()),
            json.loads(arguments.after.read_text()),
            arguments.tolerance,
        )
    except (OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print(f"{'':32} {'before':>7} {'after':>7} {'change':>7}")
    for change in changes:
        print(change)
    return int(any(change.is_worse for change in changes))


if __name__ == "__main__":
    sys.exit(main())
