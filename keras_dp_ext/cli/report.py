"""`keras-dp report`: one page about a training, to hand on."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "report",
        help="write a privacy report of a training",
        description="Writes one HTML page about a training of `keras-dp train`: what is "
        "guaranteed and what is not, epsilon over the epochs, noise, and the ledger. It "
        "loads nothing, so it can be sent to anyone.",
        epilog="example:\n  keras-dp report runs/demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "directory", metavar="DIR", help="output directory of the training"
    )
    parser.add_argument(
        "--output", metavar="FILE", help="default: report.html in the directory"
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes the page."""
    from keras_dp_ext.reporting import page, record

    directory = Path(arguments.directory)
    path = Path(arguments.output or directory / "report.html")
    text = page.compose(record.of_run(directory))
    path.write_text(text, encoding="utf-8")
    print(f"Written to {path}.")
    return 0
