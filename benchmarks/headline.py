"""The headline: accuracy of the presets at proven epsilon 3.

    python -m benchmarks.headline --data-dir DIR [--seeds 3] [--output-dir runs/headline]
        [--results-dir docs/results] [--name headline]
        [--datasets mnist fashion_mnist cifar10]

runs, for every data set and seed that has no result yet,

    keras-dp train --dataset NAME --model MODEL --accountant pld
        --target-epsilon 3 --delta 1e-5 --seed SEED

with the model that does best on these data, and writes `headline.csv`, one row for each
data set with mean and standard deviation, `headline_runs.csv`, one row for each run, and
`headline.png`. By default all data sets of images; `--datasets adult imdb --name
text_and_tables` makes the others.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

COMMAND = (
    "keras-dp train --dataset {dataset} --model {model} --accountant pld "
    "--target-epsilon 3 --delta 1e-5 --seed {seed}"
)
MODELS = {
    "mnist": "scatter_linear",
    "fashion_mnist": "scatter_linear",
    "cifar10": "scatter_linear",
    "adult": "mlp",
    "imdb": "bag_of_words",
}
IMAGES = ("mnist", "fashion_mnist", "cifar10")


def command(dataset: str, seed: int | str) -> str:
    return COMMAND.format(dataset=dataset, model=MODELS[dataset], seed=seed)


def run(dataset: str, seed: int, directory: Path, data_dir: str | None) -> dict:
    """The summary of one training, which is made if there is none yet."""
    path = directory / f"{dataset}-{seed}.json"
    if not path.exists():
        words = [*(sys.executable, "-m", "keras_dp_ext.cli")]
        words += command(dataset, seed).split()[1:]
        words += ["--json", "--overwrite", "--output-dir", str(path.with_suffix(""))]
        if data_dir:
            words += ["--data-dir", data_dir]
        finished = subprocess.run(words, check=True, stdout=subprocess.PIPE)
        path.write_bytes(finished.stdout)
    return json.loads(path.read_text())


def history(directory: Path) -> list[dict]:
    with open(directory / "history.csv", newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[dict]) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def table(runs: list[dict]) -> list[dict]:
    """One row for each data set."""
    rows = []
    for dataset in dict.fromkeys(run["dataset"] for run in runs):
        own = [run for run in runs if run["dataset"] == dataset]
        accuracies = [run["test_accuracy"] for run in own]
        rows.append(
            {
                "dataset": dataset,
                "epsilon": max(run["epsilon"] for run in own),
                "delta": own[0]["delta"],
                "accuracy_mean": round(statistics.mean(accuracies), 5),
                # One run has no spread; zero would be a claim.
                "accuracy_std": (
                    round(statistics.stdev(accuracies), 5) if len(own) > 1 else ""
                ),
                "seeds": len(own),
                "noise_multiplier": own[0]["noise_multiplier"],
                "releases": own[0]["releases"],
                "epochs": own[0]["epochs"],
                "stopped_early": any(run["interrupted"] for run in own),
                "data": own[0]["data"],
                "command": command(dataset, "SEED"),
            }
        )
    return rows


def draw(runs: list[dict], directory: Path, path: Path) -> None:
    """Test accuracy against proven epsilon, every seed."""
    from matplotlib.figure import Figure

    axes = Figure(figsize=(6, 4), layout="constrained").subplots()
    colours = {name: f"C{index}" for index, name in enumerate(MODELS)}
    labelled = set()
    for run_ in runs:
        dataset = run_["dataset"]
        rows = history(directory / f"{dataset}-{run_['seed']}")
        axes.plot(
            [float(row["epsilon"]) for row in rows],
            [float(row["val_accuracy"]) for row in rows],
            color=colours[dataset],
            linewidth=1,
            label=None if dataset in labelled else f"{dataset} ({MODELS[dataset]})",
        )
        labelled.add(dataset)
    axes.set_xlabel("proven epsilon (PLD), delta 1e-5")
    axes.set_ylabel("test accuracy")
    axes.set_title("Presets with DP-SGD, every seed")
    axes.grid(alpha=0.3)
    axes.legend()
    axes.figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get("KERAS_DP_DATA"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--datasets", nargs="+", default=IMAGES, choices=MODELS)
    parser.add_argument("--output-dir", type=Path, default=Path("runs/headline"))
    parser.add_argument("--results-dir", type=Path, default=Path("docs/results"))
    parser.add_argument("--name", default="headline", help="of the results")
    arguments = parser.parse_args()
    for directory in (arguments.output_dir, arguments.results_dir):
        directory.mkdir(parents=True, exist_ok=True)
    runs = [
        {
            **run(dataset, seed, arguments.output_dir, arguments.data_dir),
            "seed": seed,
        }
        for dataset in arguments.datasets
        for seed in range(arguments.seeds)
    ]
    results = arguments.results_dir / arguments.name
    rows = table(runs)
    write(results.with_suffix(".csv"), rows)
    columns = (
        *("dataset", "seed", "test_accuracy", "epsilon", "delta", "releases"),
        *("epochs", "interrupted"),
    )
    write(
        results.with_name(f"{arguments.name}_runs.csv"),
        [{column: run[column] for column in columns} for run in runs],
    )
    draw(runs, arguments.output_dir, results.with_suffix(".png"))
    for row in rows:
        print(
            f"{row['dataset']}: {row['accuracy_mean']:.4f} (standard deviation "
            f"{row['accuracy_std'] or 'unknown'}, {row['seeds']} runs) at proven "
            f"epsilon {row['epsilon']:.4f}"
        )


if __name__ == "__main__":
    main()
