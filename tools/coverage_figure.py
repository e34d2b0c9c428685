"""Writes the coverage of a whole run into CONTRIBUTING.md.

make coverage        (runs this at its end, if all tests ran)
"""

from __future__ import annotations

import collections
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "runs" / "coverage.json"
PAGE = ROOT / "CONTRIBUTING.md"

_BLOCK = re.compile(r"(<!-- coverage -->\n).*?(<!-- /coverage -->)", re.DOTALL)


def table(report: dict) -> str:
    """Covered lines and branches of each folder, as Markdown.

    Args:
        report: What `coverage json` writes.
    """
    covered: collections.Counter = collections.Counter()
    total: collections.Counter = collections.Counter()
    for path, entry in report["files"].items():
        folder = "/".join(Path(path).parts[1:-1][:1]) or "(modules beside the folders)"
        summary = entry["summary"]
        for name in (folder, "all"):
            covered[name] += summary["covered_lines"] + summary["covered_branches"]
            total[name] += summary["num_statements"] + summary["num_branches"]
    lines = ["| folder | lines and branches that tests run |", "|---|---|"]
    for name in [*sorted(set(total) - {"all"}), "all"]:
        if total[name]:
            lines.append(f"| {name} | {100 * covered[name] / total[name]:.1f}% |")
    return "\n".join(lines) + "\n"


def main() -> None:
    found = table(json.loads(MEASURED.read_text()))
    text, count = _BLOCK.subn(lambda m: f"{m[1]}{found}{m[2]}", PAGE.read_text())
    if count != 1:
        raise SystemExit(f"{PAGE.name} has no place for the figures.")
    PAGE.write_text(text)
    print(found)


if __name__ == "__main__":
    main()
