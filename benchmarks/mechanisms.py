"""Which mechanism should I use? The four of the papers at equal proven epsilon.

    python -m benchmarks.mechanisms --data-dir DIR [--dataset adult] [--seeds 3]
        [--epsilons 1 3] [--output-dir runs/mechanisms] [--results-dir docs/results]

trains the data set's preset (Adult: logistic regression on steps of the columns) with
DP-SGD, encoding, the tanh filter and directional noise, all with their proven
guarantee and RDP accounting. Each has the learning rate that does best on a fifth of the
training rows, held out; what is reported are trainings on all rows, tested on the test
set. Runs are kept in the output directory, so that a benchmark that was stopped goes on.
Writes `mechanisms.csv` and `mechanisms.png`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
from pathlib import Path
from typing import Any

from benchmarks.headline import write

#: Learning rates that are tried. A denoised update is a small part of a plain one.
RATES = {
    "dpsgd": (1.0, 4.0, 12.0),
    "encoding": (1.0, 5.0, 20.0, 80.0, 320.0),
    "tanh": (1.0, 4.0, 12.0),
    "directional": (1.0, 4.0, 12.0),
}


def held_out(data: Any) -> Any:
    """The training rows alone, a fifth of them as a test set."""
    cut = len(data.x_train) * 4 // 5
    return dataclasses.replace(
        data,
        x_train=data.x_train[:cut],
        y_train=data.y_train[:cut],
        x_test=data.x_train[cut:],
        y_test=data.y_train[cut:],
    )


def run(path: Path, data: Any, **arguments: Any) -> dict[str, Any]:
    """The accuracy of one training, which is made if there is none yet."""
    if not path.exists():
        from keras_dp_ext.accounting.of_model import epsilon_of
        from keras_dp_ext.cli._experiment import Experiment
        from keras_dp_ext.cli._settings import Settings

        asked = Settings(
            dataset=data.name, delta=1e-5, epochs=12, accountant="rdp", **arguments
        )
        experiment = Experiment(asked, data)
        experiment.fit(verbose=0)
        result = {
            **arguments,
            "accuracy": experiment.test_accuracy(),
            "epsilon": epsilon_of(experiment.model, 1e-5),
        }
        path.write_text(json.dumps(result) + "\n")
        print(path.stem, round(result["accuracy"], 4), flush=True)
    return json.loads(path.read_text())


def compare(
    data: Any, epsilons: list[float], seeds: int, directory: Path
) -> list[dict[str, Any]]:
    """One row for each mechanism and epsilon."""
    rows = []
    for mechanism, rates in RATES.items():
        tried = [
            run(
                directory / f"{data.name}-{mechanism}-rate-{rate:g}.json",
                held_out(data),
                mechanism=mechanism,
                learning_rate=rate,
                target_epsilon=max(epsilons),
            )
            for rate in rates
        ]
        rate = max(tried, key=lambda one: one["accuracy"])["learning_rate"]
        for epsilon in epsilons:
            runs = [
                run(
                    directory
                    / f"{data.name}-{mechanism}-{rate:g}-{epsilon:g}-{seed}.json",
                    data,
                    mechanism=mechanism,
                    learning_rate=rate,
                    target_epsilon=epsilon,
                    seed=seed,
                )
                for seed in range(seeds)
            ]
            accuracies = [one["accuracy"] for one in runs]
            rows.append(
                {
                    "dataset": data.name,
                    "mechanism": mechanism,
                    "target_epsilon": epsilon,
                    "epsilon": max(one["epsilon"] for one in runs),
                    "learning_rate": rate,
                    "rates_tried": len(rates),
                    "accuracy_mean": round(statistics.mean(accuracies), 5),
                    "accuracy_std": (
                        round(statistics.stdev(accuracies), 5) if seeds > 1 else ""
                    ),
                    "seeds": seeds,
                }
            )
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Bars of accuracy, side by side for each epsilon."""
    from matplotlib.figure import Figure

    axes = Figure(figsize=(6, 3.5), layout="constrained").subplots()
    epsilons = sorted({row["target_epsilon"] for row in rows})
    width = 0.8 / len(RATES)
    for index, mechanism in enumerate(RATES):
        own = sorted(
            (row for row in rows if row["mechanism"] == mechanism),
            key=lambda row: row["target_epsilon"],
        )
        axes.bar(
            [place + (index - 1.5) * width for place in range(len(own))],
            [100 * row["accuracy_mean"] for row in own],
            width,
            yerr=[100 * (row["accuracy_std"] or 0.0) for row in own],
            capsize=3,
            label=mechanism,
        )
    axes.set_xticks(range(len(epsilons)), [f"epsilon {e:g}" for e in epsilons])
    low = min(row["accuracy_mean"] for row in rows)
    axes.set_ylim(100 * low - 2, None)
    axes.set_ylabel("test accuracy, %")
    axes.set_title(f"{rows[0]['dataset']}: four mechanisms at equal proven epsilon")
    axes.legend(loc="lower right", fontsize=8)
    axes.figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get("KERAS_DP_DATA"))
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output-dir", type=Path, default=Path("runs/mechanisms"))
    parser.add_argument("--results-dir", type=Path, default=Path("docs/results"))
    arguments = parser.parse_args()
    for directory in (arguments.output_dir, arguments.results_dir):
        directory.mkdir(parents=True, exist_ok=True)
    from keras_dp_ext.data import load

    data = load(arguments.dataset, arguments.data_dir)
    rows = compare(data, arguments.epsilons, arguments.seeds, arguments.output_dir)
    write(arguments.results_dir / "mechanisms.csv", rows)
    draw(rows, arguments.results_dir / "mechanisms.png")


if __name__ == "__main__":
    main()
