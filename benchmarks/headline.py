"""The headline: the best accuracy at proven epsilon 1, 3 and 8 on five data sets.

    python -m benchmarks.headline --data-dir DIR [--seeds 3] [--epsilons 3 1 8]
        [--datasets cifar10 mnist ...] [--output-dir runs/headline]
        [--results-dir docs/results]

trains, for every data set, epsilon and seed that has no result yet, what

    keras-dp train --dataset NAME --model MODEL --accountant pld
        --target-epsilon EPSILON --delta 1e-5 --seed SEED

trains, with the model that does best on these data, in one process: features are
computed once. Each run is kept in the output directory, so that a benchmark that was
stopped goes on. It writes `headline.csv`, one row for each data set and epsilon with mean
and standard deviation, `headline_runs.csv`, one row for each run, and `headline.png`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

COMMAND = (
    "keras-dp train --dataset {dataset} --model {model} --accountant pld "
    "--target-epsilon {epsilon:g} --delta 1e-5 --seed {seed}"
)
MODELS = {
    "cifar10": "scatter_random",
    "mnist": "scatter_drawn",
    "fashion_mnist": "scatter_drawn",
    "imdb": "bag_of_words",
    "adult": "binned_linear",
}
EPSILONS = (3.0, 1.0, 8.0)


def command(dataset: str, epsilon: float, seed: int | str) -> str:
    """The command that makes one run."""
    return COMMAND.format(
        dataset=dataset, model=MODELS[dataset], epsilon=epsilon, seed=seed
    )


def settings(dataset: str, epsilon: float, seed: int, **where: Any) -> Any:
    """What the command asks for."""
    from keras_dp_ext.cli._settings import Settings

    return Settings(
        dataset=dataset,
        model=MODELS[dataset],
        accountant="pld",
        target_epsilon=epsilon,
        delta=1e-5,
        seed=seed,
        **where,
    )


def train(data: Any, asked: Any) -> dict[str, Any]:
    """Trains once; what is kept of it."""
    from keras_dp_ext.accounting.of_model import epsilon_of
    from keras_dp_ext.cli._experiment import Experiment

    started = time.process_time()
    experiment = Experiment(asked, data)
    experiment.fit(verbose=0)
    model, ledger = experiment.model, experiment.model.optimizer.ledger
    return {
        "dataset": data.name,
        "target_epsilon": asked.target_epsilon,
        "seed": asked.seed,
        "test_accuracy": experiment.test_accuracy(),
        "epsilon": epsilon_of(model, experiment.delta, "pld"),
        "delta": experiment.delta,
        "model": experiment.recipe.model,
        "noise_multiplier": experiment.noise_multiplier,
        "releases": int(model.optimizer.releases.numpy()),
        "other_releases": sum(one.count for one in ledger.one_offs),
        "uncovered": "; ".join(ledger.uncovered),
        "epochs": experiment.epochs_done,
        "processor_seconds": round(time.process_time() - started, 1),
        "data": data.note,
    }


def write(path: Path, rows: list[dict]) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def table(runs: list[dict]) -> list[dict]:
    """One row for each data set and epsilon."""
    rows = []
    groups = dict.fromkeys((run["dataset"], run["target_epsilon"]) for run in runs)
    for dataset, target in sorted(groups):
        own = [
            run
            for run in runs
            if (run["dataset"], run["target_epsilon"]) == (dataset, target)
        ]
        accuracies = [run["test_accuracy"] for run in own]
        rows.append(
            {
                "dataset": dataset,
                "target_epsilon": target,
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
                "other_releases": own[0]["other_releases"],
                "epochs": own[0]["epochs"],
                "data": own[0]["data"],
                "command": command(dataset, target, "SEED"),
            }
        )
    return rows


def draw(rows: list[dict], path: Path) -> None:
    """Test accuracy against proven epsilon, one line for each data set."""
    from matplotlib.figure import Figure

    axes = Figure(figsize=(6, 4.6), layout="constrained").subplots()
    for index, dataset in enumerate(MODELS):
        own = [row for row in rows if row["dataset"] == dataset]
        if not own:
            continue
        axes.errorbar(
            [row["epsilon"] for row in own],
            [100 * row["accuracy_mean"] for row in own],
            yerr=[100 * (row["accuracy_std"] or 0.0) for row in own],
            marker="o",
            capsize=3,
            color=f"C{index}",
            label=f"{dataset} ({MODELS[dataset]})",
        )
        for row in own:
            axes.annotate(
                f"{100 * row['accuracy_mean']:.1f}",
                (row["epsilon"], 100 * row["accuracy_mean"]),
                textcoords="offset points",
                xytext=(0, -13 if _is_close_above(row, rows) else 6),
                ha="center",
                fontsize=8,
            )
    axes.set_xscale("log")
    axes.set_xticks(sorted({row["target_epsilon"] for row in rows}))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_xlabel("proven epsilon (PLD), delta 1e-5")
    axes.set_ylabel("test accuracy, %")
    axes.set_title("Presets with DP-SGD: mean and deviation of the seeds")
    axes.grid(alpha=0.3)
    axes.margins(y=0.08)
    axes.figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    axes.figure.savefig(path, dpi=150)


def _is_close_above(row: dict, rows: list[dict]) -> bool:
    """Whether another point is so near above that its label would cover this one's."""
    own = row["accuracy_mean"], row["dataset"]
    others = [
        (other["accuracy_mean"], other["dataset"])
        for other in rows
        if other["target_epsilon"] == row["target_epsilon"]
    ]
    return any(own < other and other[0] - own[0] < 0.02 for other in others)


def summarize(output: Path, results: Path) -> list[dict]:
    """Writes the results of all runs that there are."""
    runs = [json.loads(path.read_text()) for path in sorted(output.glob("*.json"))]
    rows = table(runs)
    write(results / "headline.csv", rows)
    columns = (
        *("dataset", "target_epsilon", "seed", "test_accuracy", "epsilon", "delta"),
        *("noise_multiplier", "releases", "other_releases", "epochs"),
        "processor_seconds",
    )
    write(
        results / "headline_runs.csv",
        [{column: run[column] for column in columns} for run in runs],
    )
    draw(rows, results / "headline.png")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get("KERAS_DP_DATA"))
    parser.add_argument("--cache-dir", help="of features. Default: in the output dir")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--datasets", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--output-dir", type=Path, default=Path("runs/headline"))
    parser.add_argument("--results-dir", type=Path, default=Path("docs/results"))
    arguments = parser.parse_args()
    for directory in (arguments.output_dir, arguments.results_dir):
        directory.mkdir(parents=True, exist_ok=True)
    cache = arguments.cache_dir or str(arguments.output_dir / "features")
    where = {"data_dir": arguments.data_dir, "cache_dir": cache}
    for dataset in arguments.datasets:
        data = None
        for epsilon in arguments.epsilons:
            for seed in range(arguments.seeds):
                path = arguments.output_dir / f"{dataset}-{epsilon:g}-{seed}.json"
                if path.exists():
                    continue
                from keras_dp_ext.cli._experiment import load_data

                asked = settings(dataset, epsilon, seed, **where)
                data = load_data(asked) if data is None else data
                run = train(data, asked)
                path.write_text(json.dumps(run, indent=2) + "\n")
                print(
                    f"{dataset}, epsilon {run['epsilon']:.4f}, seed {seed}: "
                    f"{run['test_accuracy']:.4f}",
                    flush=True,
                )
    for row in summarize(arguments.output_dir, arguments.results_dir):
        print(
            f"{row['dataset']}: {row['accuracy_mean']:.4f} (standard deviation "
            f"{row['accuracy_std'] or 'unknown'}, {row['seeds']} runs) at proven "
            f"epsilon {row['epsilon']:.4f}"
        )


if __name__ == "__main__":
    main()
