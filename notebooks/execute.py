"""Runs the notebooks of this folder from top to bottom and keeps their outputs.

    python notebooks/execute.py [NAME.ipynb ...]        (or: make notebooks)

With real data in the directory of KERAS_DP_DATA, notebook 5 uses it. What TensorFlow
tells about the machine on standard error is not kept.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nbclient
import nbformat

FOLDER = Path(__file__).parent


def execute(path: Path, environment: dict[str, str] | None = None):
    """The notebook with the outputs of a run; raises where a cell fails.

    Args:
        path: The notebook.
        environment: Variables of the kernel; by default those of this process.
    """
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=1200,
        kernel_name="python3",
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute(**({} if environment is None else {"env": environment}))
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # Times of day: they differ in every run.
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
    return notebook


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb"))
    for path in paths:
        started = time.monotonic()
        nbformat.write(execute(path), path)
        print(f"{path.name}: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
