"""Trains every third-party model, and writes docs/models.md.

    python -m benchmarks.third_party --json docs/results/models.json --output docs/models.md

A second call with the same file goes on where the first one ended; `--again` measures
the named models anew, and `--page` writes the page from the file alone. Models of
KerasHub need `pip install keras-dp-ext[hub]`, and are left out where it is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", help="names, separated by semicolons")
    parser.add_argument("--json", type=Path, required=True, help="all measurements")
    parser.add_argument("--output", type=Path, help="where to write the page")
    parser.add_argument("--again", action="store_true", help="measure what is there")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument(
        "--no-xla", action="store_true", help="leave XLA for a later call"
    )
    arguments = parser.parse_args()
    results = {}
    if arguments.json.exists():
        results = json.loads(arguments.json.read_text())
    names = arguments.models.split(";") if arguments.models else list(CASES)
    if not arguments.page:
        _import_all()
        has_hub = importlib.util.find_spec("keras_hub") is not None
        for name in names:
            case = CASES[name]
            if case.source == "KerasHub" and not has_hub:
                continue
            if name not in results or arguments.again:
                results[name] = measure(case)
                arguments.json.write_text(json.dumps(results, indent=1) + "\n")
            row = results[name]
            if not arguments.no_xla and row["verdict"] == "trains" and "xla" not in row:
                row |= measure_xla(case)
                arguments.json.write_text(json.dumps(results, indent=1) + "\n")
            print(name, row, file=sys.stderr, flush=True)
    if arguments.output:
        arguments.output.write_text(page(results))


if __name__ == "__main__":
    main()
