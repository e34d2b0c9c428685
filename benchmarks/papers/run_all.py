"""Runs every script of this folder, one after the other: `make reproduce`.

python -m benchmarks.papers.run_all [--full] [--data-dir DIR] [--output-dir DIR]
    [--only NAME ...]
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
    "errata_directional",
    "nasr_figures",
    "nasr_figure6",
    "amian_figures",
    "xiang_ill_conditioned",
    "xiang_figures",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the papers' sizes: hours")
    parser.add_argument("--data-dir", default=os.environ.get("KERAS_DP_DATA"))
    parser.add_argument("--output-dir", type=Path, default=Path("runs/papers"))
    parser.add_argument("--only", nargs="*", choices=SCRIPTS, default=SCRIPTS)
    arguments = parser.parse_args()
    environment = dict(os.environ)
    if arguments.data_dir:
        environment["KERAS_DP_DATA"] = arguments.data_dir
    failed = []
    for name in arguments.only:
        command = [
            *(sys.executable, "-m", f"benchmarks.papers.{name}"),
            *("--output-dir", str(arguments.output_dir)),
            *([] if arguments.full else ["--fast"]),
        ]
        started = time.monotonic()
        print(f"== {name}", flush=True)
        if subprocess.run(command, env=environment, check=False).returncode:
            failed.append(name)
        print(f"   {time.monotonic() - started:.0f} s", flush=True)
    if failed:
        print(f"Failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
