"""Which mechanism should I use? The four of the papers at equal proven epsilon.

    python -m benchmarks.mechanisms --data-dir DIR [--problems adult mnist] [--epsilon 3]
        [--seeds 3] [--cache-dir CACHE] [--output-dir runs/mechanisms]
        [--results-dir docs/results]

trains two models with DP-SGD, encoding, the tanh filter and directional noise, all with
their proven guarantee and RDP accounting:

- Adult: the preset `binned_linear`, 48 lots of 4,096.
- MNIST: a hidden layer of 16 on the first 150 features of the preset `scatter_drawn`, 87
  lots of 2,048.

Each mechanism has settings of its own: its learning rate, its clip and what only it has
(`METHODS`). They are searched on a grid that goes on wherever the best is at its end: at
the end of the search, each setting was tried a step higher and a step lower, and did
no better on the fifth of the training rows that was held out. What is reported are
trainings on all training rows, tested on the test set. Each training is kept in the
output directory, so that a benchmark that was stopped goes on. Writes `mechanisms.csv`,
`mechanisms_runs.csv` with each training, and `mechanisms.png`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks.headline import write
from keras_dp_ext.data import DataSet, PrivateNormalization

#: A point of the grid: exponents of `FACTORS`, and names of options.
Point = Mapping[str, Any]

#: Neighbours on the grid differ by this factor. "step" is learning rate times clip: how
#: far one example can move the weights. Noise is in proportion to it, so that
#: the best step hardly depends on the clip.
FACTORS = {"step": 2.0, "clip": 3.0, "range": 3.0}
OPTIONS = {"direction": ("gradient", "uniform", "adaclip")}

_FEATURES = 150


@dataclasses.dataclass(frozen=True)
class Method:
    """A mechanism, and what of it is searched.

    Attributes:
        mechanism: Its name.
        point: Where the search begins, besides `step`.
        step: Where that of `step` begins, over the problem's own.
        options: Arguments of the mechanism.
    """

    mechanism: str
    point: Point
    step: int = 0
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


#: Encoding is searched with and without denoising: a denoised update is a small part of
#: a plain one, so that their learning rates are far from each other.
METHODS = {
    "dpsgd": Method("dpsgd", {"clip": 0}),
    "encoding, denoised": Method("encoding", {"clip": 0}, step=4),
    "encoding": Method("encoding", {"clip": 0}, options={"denoise": None}),
    "tanh": Method("tanh", {"clip": 0, "range": -2}),
    "directional": Method("directional", {"clip": 0, "direction": "gradient"}),
}


@dataclasses.dataclass(frozen=True)
class Problem:
    """Data and model.

    Attributes:
        title: For the figure.
        model: Name of a preset, or `module:function`.
        epochs: Passes over the training rows.
        batch_size: Expected examples in a lot.
        step: Where the search of the step begins.
        load: Loads the data: a function of the settings.
    """

    title: str
    model: str
    epochs: int
    batch_size: int
    step: int
    load: Callable[[Any], DataSet]


def _adult(asked: Any) -> DataSet:
    from keras_dp_ext.cli._experiment import load_data

    return load_data(dataclasses.replace(asked, dataset="adult", model="binned_linear"))


def _mnist(asked: Any) -> DataSet:
    from keras_dp_ext.cli._experiment import load_data

    data = load_data(dataclasses.replace(asked, dataset="mnist", model="scatter_drawn"))
    # Under a name that no recipe has: optimizer and schedule are the same for all.
    return dataclasses.replace(
        data,
        name="mnist_features",
        x_train=np.ascontiguousarray(data.x_train[:, :_FEATURES]),
        x_test=np.ascontiguousarray(data.x_test[:, :_FEATURES]),
    )


def hidden_layer(data: DataSet) -> keras.Model:
    """A hidden layer of 16 on features, privately centred and of equal length."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            PrivateNormalization(power=0.0),
            layers.UnitNormalization(),
            layers.Rescaling(10.0),
            layers.Dense(16, activation="tanh"),
            layers.Dense(data.num_classes),
        ]
    )


PROBLEMS = {
    "adult": Problem(
        "Adult, logistic regression", "binned_linear", 6, 4096, 3, load=_adult
    ),
    "mnist": Problem(
        "MNIST, a hidden layer on features",
        "benchmarks.mechanisms:hidden_layer",
        *(3, 2048, 1),
        load=_mnist,
    ),
}


def best_point(score: Callable[[Point], float], start: Point) -> Point:
    """Climbs from the start to a point none of whose neighbours is better.

    Args:
        score: What is to be as great as possible.
        start: Where to begin.

    Returns:
        The point. `score` was asked for it and for all of its neighbours.
    """
    point = start
    while True:
        before = point
        for name in start:
            point = _climb(score, point, name)
        if point == before:
            return point


def neighbours(point: Point, name: str) -> list[Point]:
    """The points that differ in one setting: by a factor, or in an option."""
    if name in OPTIONS:
        others = [one for one in OPTIONS[name] if one != point[name]]
    else:
        others = [point[name] - 1, point[name] + 1]
    return [{**point, name: other} for other in others]


def _climb(score: Callable[[Point], float], point: Point, name: str) -> Point:
    while True:
        # The first of the best: a tie is no reason to move.
        best = max([point, *neighbours(point, name)], key=score)
        if best == point:
            return point
        point = best


def held_out(data: DataSet) -> DataSet:
    """The training rows alone, a fifth of them as a test set."""
    cut = len(data.x_train) * 4 // 5
    return dataclasses.replace(
        data,
        x_train=data.x_train[:cut],
        y_train=data.y_train[:cut],
        x_test=data.x_train[cut:],
        y_test=data.y_train[cut:],
    )


def arguments_of(method: Method, point: Point) -> dict[str, Any]:
    """The settings of a training that a point stands for."""
    values = {name: FACTORS[name] ** k for name, k in point.items() if name in FACTORS}
    options = dict(method.options)
    if "range" in values:
        # What is far below the range passes as it is, so that clips compare.
        options |= {"output_range": values["range"], "active_range": values["range"]}
    options |= {name: point[name] for name in OPTIONS if name in point}
    return {
        "mechanism": method.mechanism,
        "learning_rate": values["step"] / values["clip"],
        "l2_norm_clip": values["clip"],
        "options": options,
    }


class Comparison:
    """All trainings on one problem, each of which is made once.

    Args:
        name: Name in `PROBLEMS`.
        epsilon: The budget of each training.
        directory: Where trainings are kept.
        where: `data_dir` and `cache_dir`.
    """

    def __init__(
        self, name: str, epsilon: float, directory: Path, where: Mapping[str, Any]
    ):
        from keras_dp_ext.cli._settings import Settings

        self.name, self.epsilon, self.directory = name, epsilon, directory
        self.problem = PROBLEMS[name]
        self.settings = Settings(
            target_epsilon=epsilon, delta=1e-5, accountant="rdp", **where
        )
        self._data: DataSet | None = None

    @property
    def data(self) -> DataSet:
        """Loaded if a training needs it."""
        if self._data is None:
            self._data = self.problem.load(self.settings)
        return self._data

    def tune(self, label: str) -> tuple[Point, float]:
        """The best settings of a method, and their accuracy on held out rows."""

        def score(point: Point) -> float:
            return self.run(label, point, seed=0, tuning=True)["accuracy"]

        method = METHODS[label]
        start = {"step": self.problem.step + method.step, **method.point}
        point = best_point(score, start)
        return point, score(point)

    def run(
        self, label: str, point: Point, seed: int, tuning: bool = False
    ) -> dict[str, Any]:
        """One training: its settings, accuracy, epsilon and time."""
        at = "_".join(f"{name}{value}" for name, value in point.items())
        path = self.directory / f"{self._name(label, tuning)}-{at}-{seed}.json"
        if not path.exists():
            result = {
                "dataset": self.name,
                "method": label,
                "tuning": tuning,
                **self._train(arguments_of(METHODS[label], point), seed, tuning),
            }
            # Under its own name only once it is complete.
            unfinished = path.with_suffix(".unfinished")
            unfinished.write_text(json.dumps(result) + "\n")
            os.replace(unfinished, path)
            print(path.stem, round(result["accuracy"], 4), flush=True)
        return json.loads(path.read_text())

    def _train(
        self, arguments: dict[str, Any], seed: int, tuning: bool
    ) -> dict[str, Any]:
        from keras_dp_ext.accounting.of_model import epsilon_of
        from keras_dp_ext.cli._experiment import Experiment

        data = held_out(self.data) if tuning else self.data
        started = time.process_time()
        keras.utils.clear_session()
        asked = dataclasses.replace(
            self.settings,
            model=self.problem.model,
            epochs=self.problem.epochs,
            batch_size=self.problem.batch_size,
            seed=seed,
            **arguments,
        )
        experiment = Experiment(asked, data)
        experiment.fit(verbose=0)
        return {
            **arguments,
            "seed": seed,
            "accuracy": experiment.test_accuracy(),
            "epsilon": epsilon_of(experiment.model, asked.delta),
            "noise_multiplier": experiment.noise_multiplier,
            "processor_seconds": round(time.process_time() - started, 1),
        }

    def compare(self, seeds: int) -> list[dict[str, Any]]:
        """One row for each mechanism."""
        best: dict[str, tuple[float, str, Point]] = {}
        for label, method in METHODS.items():
            point, accuracy = self.tune(label)
            mine = (accuracy, label, point)
            best[method.mechanism] = max(best.get(method.mechanism, mine), mine)
        rows = []
        for mechanism, (accuracy, label, point) in best.items():
            runs = [self.run(label, point, seed) for seed in range(seeds)]
            accuracies = [one["accuracy"] for one in runs]
            rows.append(
                {
                    "dataset": self.name,
                    "mechanism": mechanism,
                    "target_epsilon": self.epsilon,
                    "epsilon": max(one["epsilon"] for one in runs),
                    "learning_rate": runs[0]["learning_rate"],
                    "l2_norm_clip": runs[0]["l2_norm_clip"],
                    "options": _text(runs[0]["options"]),
                    "settings_tried": self._tried(mechanism),
                    "held_out_accuracy": round(accuracy, 5),
                    "accuracy_mean": round(statistics.mean(accuracies), 5),
                    "accuracy_std": (
                        round(statistics.stdev(accuracies), 5) if seeds > 1 else ""
                    ),
                    "seeds": seeds,
                }
            )
        return rows

    def _tried(self, mechanism: str) -> int:
        """How many settings of a mechanism were tried."""
        own = [label for label in METHODS if METHODS[label].mechanism == mechanism]
        names = [f"{self._name(label, tuning=True)}-*.json" for label in own]
        return sum(len(list(self.directory.glob(name))) for name in names)

    def _name(self, label: str, tuning: bool) -> str:
        """What the files of trainings begin with."""
        rows = "held-out" if tuning else "all"
        return f"{self.name}-{label.replace(', ', '-')}-{self.epsilon:g}-{rows}"


def all_runs(directory: Path) -> list[dict[str, Any]]:
    """Each training that there is."""
    return [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]


def _text(options: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in options.items()
    )


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """A panel for each problem: accuracy by mechanism."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["dataset"] for row in rows))
    figure = Figure(figsize=(4.5 * len(names), 3.6), layout="constrained")
    for axes, name in zip(
        figure.subplots(1, len(names), squeeze=False)[0], names, strict=True
    ):
        own = [row for row in rows if row["dataset"] == name]
        means = [100 * row["accuracy_mean"] for row in own]
        errors = [100 * (row["accuracy_std"] or 0.0) for row in own]
        for index, (mean, error) in enumerate(zip(means, errors, strict=True)):
            axes.errorbar(
                index, mean, yerr=error, marker="o", capsize=5, color=f"C{index}"
            )
            axes.annotate(
                f"{mean:.1f}",
                (index, mean + error),
                textcoords="offset points",
                xytext=(0, 3),
                ha="center",
            )
        axes.set_xticks(range(len(own)), [row["mechanism"] for row in own])
        axes.set_xlim(-0.5, len(own) - 0.5)
        axes.margins(y=0.2)
        axes.grid(axis="y", alpha=0.3)
        axes.set_title(PROBLEMS[name].title, fontsize=10)
        axes.set_ylabel("test accuracy, %")
    figure.suptitle(
        f"Four mechanisms at proven epsilon {rows[0]['target_epsilon']:g}, each with "
        f"its own settings ({rows[0]['seeds']} seeds)",
        fontsize=11,
    )
    figure.savefig(path, dpi=150)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get("KERAS_DP_DATA"))
    parser.add_argument("--cache-dir", help="of features. Default: in the output dir")
    parser.add_argument(
        "--problems", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS)
    )
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output-dir", type=Path, default=Path("runs/mechanisms"))
    parser.add_argument("--results-dir", type=Path, default=Path("docs/results"))
    given = parser.parse_args(arguments)
    for directory in (given.output_dir, given.results_dir):
        directory.mkdir(parents=True, exist_ok=True)
    cache = given.cache_dir or str(given.output_dir / "features")
    where = {"data_dir": given.data_dir, "cache_dir": cache}
    rows = []
    for name in given.problems:
        comparison = Comparison(name, given.epsilon, given.output_dir, where)
        rows += comparison.compare(given.seeds)
    write(given.results_dir / "mechanisms.csv", rows)
    runs = [
        {**run, "options": _text(run["options"])} for run in all_runs(given.output_dir)
    ]
    write(given.results_dir / "mechanisms_runs.csv", runs)
    draw(rows, given.results_dir / "mechanisms.png")


if __name__ == "__main__":
    main()
