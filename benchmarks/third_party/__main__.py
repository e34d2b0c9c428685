"""Trains every third-party model, and writes docs/models.md.

    python -m benchmarks.third_party --json docs/results/models.json --output docs/models.md

Every model is written down as soon as it is measured, so a second call with the same
file goes on where the first one ended. `--before 2030-01-31T12:00` measures again what is
older than that, the oldest first, and `--page` writes the page from the file alone. Models
of KerasHub need `pip install keras-dp-ext[hub]`, and are left out where it is missing.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.third_party.catalogue import CASES
from benchmarks.third_party.measure import measure, measure_xla
from benchmarks.third_party.page import page


def _import_all() -> None:
    """What forked processes share. No op may run here: a fork would hang."""
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    import keras_dp_ext.optimizers  # noqa: F401

    if importlib.util.find_spec("keras_hub"):
        import keras_hub  # noqa: F401


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", help="names, separated by semicolons")
    parser.add_argument("--json", type=Path, required=True, help="all measurements")
    parser.add_argument("--output", type=Path, help="where to write the page")
    parser.add_argument("--before", default="", help="measure again what is older")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    names = arguments.models.split(";") if arguments.models else list(CASES)
    results = _read(arguments.json)
    if not arguments.page:
        _import_all()
        if importlib.util.find_spec("keras_hub") is None:
            names = [name for name in names if CASES[name].source != "KerasHub"]
        dates = {name: results.get(name, {}).get("date", "") for name in names}
        for name in sorted(names, key=dates.__getitem__):
            row = results.get(name)
            if row is None or dates[name] < arguments.before:
                row = measure(CASES[name])
                row["date"] = datetime.datetime.now().isoformat("T", "minutes")
            elif row["verdict"] == "trains" and "xla" not in row:
                row = row | measure_xla(CASES[name])
            else:
                continue
            results = _read(arguments.json) | {name: row}
            arguments.json.write_text(json.dumps(results, indent=1) + "\n")
            print(name, row, file=sys.stderr, flush=True)
    if arguments.output:
        arguments.output.write_text(page(results))


if __name__ == "__main__":
    main()
