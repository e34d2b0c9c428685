"""Dispatches `keras-dp SUBCOMMAND` to the module of that name."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import pkgutil
import re
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from keras_dp_ext import __version__, cli

# What a user can cause by wrong input; everything else is a bug, with a traceback.
_EXPECTED = (ValueError, NotImplementedError, ArithmeticError, OSError, ImportError)


class _Parser(argparse.ArgumentParser):
    """Errors in one line, without the usage in front of it."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong is not None:
            choices = re.findall(r"[\w-]+", wrong[2])
            close = difflib.get_close_matches(wrong[1], choices, n=1)
            message += "".join(f". Did you mean {name}?" for name in close)
        self.exit(2, f"{self.prog}: error: {message}\n")


def subcommands() -> dict[str, ModuleType]:
    """Modules of `keras_dp_ext.cli` that have `add_parser` and `run`.

    They must import nothing heavy on top: `run` does that.
    """
    names = sorted(
        module.name
        for module in pkgutil.iter_modules(cli.__path__)
        if not module.name.startswith("_") and module.name != "main"
    )
    modules = {
        name: importlib.import_module(f"{cli.__name__}.{name}") for name in names
    }
    return {name: m for name, m in modules.items() if hasattr(m, "add_parser")}


def _with_hyphens(argv: Sequence[str] | None) -> list[str]:
    """`--target_epsilon`, as it is called in Python, means `--target-epsilon`."""
    words = sys.argv[1:] if argv is None else argv
    return [
        re.sub(r"^--\w+", lambda name: name[0].replace("_", "-"), word)
        for word in words
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: Arguments; by default those of the process.

    Returns:
        The exit status: 0, or 2 after an error, which is told in one line.
    """
    parser = _Parser(
        prog="keras-dp",
        description="Differential privacy for Keras, with the epsilon it has earned.",
    )
    parser.add_argument(
        "--version", action="version", version=f"keras-dp-ext {__version__}"
    )
    subparsers = parser.add_subparsers(
        dest="subcommand", metavar="SUBCOMMAND", parser_class=_Parser
    )
    modules = subcommands()
    for module in modules.values():
        module.add_parser(subparsers)
    try:
        arguments = parser.parse_args(_with_hyphens(argv))
    except SystemExit as exit_:
        return int(exit_.code or 0)
    if arguments.subcommand is None:
        parser.print_help()
        return 0
    format_warning = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"keras-dp: warning: {message}\n"
    try:
        return modules[arguments.subcommand].run(arguments) or 0
    except BrokenPipeError:
        # The reader (`head`) has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except _EXPECTED as error:
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"keras-dp {arguments.subcommand}: error: {message}", file=sys.stderr)
        return 2
    finally:
        warnings.formatwarning = format_warning
