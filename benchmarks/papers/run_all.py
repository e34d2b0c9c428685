"""Runs every script of this folder, one after the other: `make reproduce`.

    python -m benchmarks.papers.run_all [--full] [--data-dir DIR] [--output-dir DIR]
        [--only NAME ...]

Fast mode takes about ten minutes on two cores, offline. With `--full` every script runs
at the paper's size: days on a processor, which the scripts' own arguments can limit.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

SCRIPTS = (
    "abadi_figure2",
    "abadi_figure3",
    "abadi_figure6",
    "places_of_noise",
    "nasr_figure1",
    "nasr_figures",
    "nasr_figure6",
    "amian_figures",
    "xiang_figures1_2",
    "xiang_table2",
    "xiang_figures",
    "xiang_ill_conditioned",
    "errata_directional",
    "errata",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the papers' sizes: days")
    parser.add_argument("--data-dir", default=os.environ.get("KERAS_DP_DATA"))
    parser.add_argument("--output-dir", type=Path, default=Path("runs/papers"))
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=SCRIPTS)
    arguments = parser.parse_args()
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    if arguments.data_dir:
        environment["KERAS_DP_DATA"] = arguments.data_dir
    failed, begun = [], time.monotonic()
    for number, name in enumerate(arguments.only):
        command = [
            *(sys.executable, "-m", f"benchmarks.papers.{name}"),
            *("--output-dir", str(arguments.output_dir)),
            *([] if arguments.full else ["--fast"]),
        ]
        started = time.monotonic()
        print(f"== {name} ({number + 1} of {len(arguments.only)})", flush=True)
        if subprocess.run(command, env=environment, check=False).returncode:
            failed.append(name)
        print(f"== {name}: {time.monotonic() - started:.0f} s\n", flush=True)
    minutes = (time.monotonic() - begun) / 60
    print(f"Results in {arguments.output_dir}, {minutes:.1f} minutes")
    if failed:
        print(f"Failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
