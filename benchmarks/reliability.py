"""Runs the reliability tests, slow ones included, and writes what was lost.

    python benchmarks/reliability.py docs/reliability_run.md

Each row of the table is a promise; its tests are run here, and what they tried and
lost is counted from the run itself, never typed in.
"""

from __future__ import annotations

import argparse
import datetime
import pathlib
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from importlib import metadata

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Promise, fault injected, tests, and how many trials one passed test stands for.
ROWS = [
    (
        "One example never moves the sum further than its bound",
        "NaN, Inf, 1e30, overflow, denormals, in inputs and targets; 3 mechanisms",
        "a_poisoned_example",
        8,
    ),
    (
        "... also where squares underflow",
        "inputs of 1e-19 with gradients of 1e19, and the like",
        "underflow_of_one_factor",
        4,
    ),
    (
        "... for any float32 at all",
        "hypothesis: every bit pattern, any clip; DP-SGD, tanh, encoding",
        "test_properties.py::test_no_row or every_encoded_row",
        60,
    ),
    (
        "Odd batches do what they should",
        "NaN rows, zero gradients, one example, weights of 0 and -1, bad labels",
        "contributes_exactly_nothing or gradients_of_zero or batch_of_one or "
        "sample_weights_of_zero or labels_out_of_range or empty_poisson",
        1,
    ),
    (
        "Replicas release what one device releases, bit-identical, one draw",
        "2 replicas; 7 optimizers, lots and secure noise among them",
        "two_replicas or noise_of_two or microbatches_are_counted",
        1,
    ),
    (
        "... and so do workers",
        "2 processes on 127.0.0.1",
        "two_workers",
        2,
    ),
    (
        "A lot is one big batch, one draw, one event",
        "2 to 5 batches to a lot; stopped in the middle; saved in the middle",
        "test_lots.py",
        1,
    ),
    (
        "Half precision changes neither bound nor noise",
        "mixed_float16, mixed_bfloat16, overflow, loss scaling",
        "test_precision.py",
        1,
    ),
    (
        "A killed training resumes with all it has spent",
        "SIGKILL at a random moment, 20 times in one training",
        "killed_twenty",
        20,
    ),
    (
        "No save forgets a release, none gives one back",
        ".keras, .weights.h5, tf.train.Checkpoint, older weights, another optimizer, "
        "less noise, a backup cut off while writing",
        "test_resume.py and not killed",
        1,
    ),
    (
        "Noise never repeats",
        "same seed, second trace, restore, recompilation, fork",
        "test_randomness.py and not hang",
        1,
    ),
    (
        "A fork during training does not hang",
        "fork while another thread trains",
        "fork_during_training",
        100,
    ),
    (
        "Secure noise hides the sum in its last bits, too",
        "Mironov's distinguisher on 20,000 coordinates; 6 noises",
        "test_secure_noise.py",
        1,
    ),
    (
        "Misuse gives the right result or an error",
        "tapes, steps_per_execution, class weights, frozen and added layers, two "
        "optimizers, add_loss, penalties, fit twice, nested models",
        "test_misuse.py and not empty_poisson",
        1,
    ),
    (
        "A ledger loses nothing; epsilon never shrinks",
        "hypothesis: any segments, rates, multipliers",
        "test_properties.py::test_epsilon_grows or loses_no_release",
        25,
    ),
    (
        "The command line neither crashes nor lies",
        "hypothesis: 150 nonsense calls, 25 against the accountant",
        "command_line",
        25,
    ),
    ("Memory stays flat", "10,000 steps", "ten_thousand_steps", 10_000),
    (
        "Ten million parameters train in 12 GB",
        "batch 64; DP-SGD, tanh, encoding",
        "ten_million",
        1,
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="without slow tests")
    arguments = parser.parse_args()
    results: list[tuple[str, bool]] = []
    for slow in (False,) if arguments.quick else (False, True):
        for file in sorted((ROOT / "tests" / "reliability").glob("test_*.py")):
            results += _run(file, slow)
            # After every file: a run that is cut off has shown what it could.
            arguments.output.write_text(_table(results))
    print(arguments.output.read_text())
    sys.exit(any(not passed for _, passed in results))


def _table(results: list[tuple[str, bool]]) -> str:
    lines = [
        f"Run of {datetime.date.today()}: Python {platform.python_version()}, "
        f"TensorFlow {metadata.version('tensorflow')}, "
        f"Keras {metadata.version('keras')}.",
        "",
        "| promise | fault injected | tried | lost |",
        "|---|---|---|---|",
    ]
    for promise, fault, selection, trials in ROWS:
        found = [passed for name, passed in results if _matches(name, selection)]
        lost = trials * found.count(False)
        tried = f"{trials * len(found):,}" if found else "not run"
        lines.append(f"| {promise} | {fault} | {tried} | {lost if found else ''} |")
    return "\n".join(lines) + "\n"


def _run(file: pathlib.Path, slow: bool) -> list[tuple[str, bool]]:
    """Names of a file's tests and whether they passed."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", str(file)]
        command += ["-m", "slow" if slow else "not slow", f"--junitxml={report}"]
        subprocess.run(command, cwd=ROOT, check=False)
        return [
            (
                f"{case.get('classname').split('.')[-1]}.py::{case.get('name')}",
                case.find("failure") is None and case.find("error") is None,
            )
            for case in ElementTree.parse(report).iter("testcase")
            if case.find("skipped") is None
        ]


def _matches(name: str, selection: str) -> bool:
    """`selection`: words joined by "or", then by "and not"."""
    wanted, *excluded = selection.split(" and not ")
    return any(word.strip() in name for word in wanted.split(" or ")) and not any(
        word.strip() in name for word in excluded
    )


if __name__ == "__main__":
    main()
