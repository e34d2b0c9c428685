"""What the scripts of this folder share: arguments, data, drawing, three outputs.

Every script writes a CSV, a PNG and one paragraph (`.md`, with the command that made
them) into `--output-dir`. `--fast` takes the embedded digits in place of every data
set, and works offline. Without it, data comes from `--data-dir` (or the environment
variable KERAS_DP_DATA), and trainings go on where they were interrupted (`runs.py`).
`--plan` lists what is missing, and `--finished-only` draws what is there.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import itertools
import math
import os
import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.runs import DELTA, Case, run_cases

__all__ = ["DELTA", "Case", "run_cases"]

#: What the papers call a data set, and how many training examples it has there.
PAPER_DATA = {
    "mnist": ("MNIST", 60_000),
    "cifar10": ("CIFAR-10", 50_000),
    "svhn_cropped": ("SVHN", 73_257),
}

#: The argument of scripts that choose their learning rates (`tuning.py`).
TUNE = {"action": "store_true", "help": "make the table of learning rates"}

# Arguments ----------------------------------------------------------------


def parse_arguments(
    description: str,
    name: str,
    data: bool = True,
    only: Sequence[str] = (),
    methods: Sequence[str] = (),
    left_out: Sequence[str] = (),
    extra: dict[str, dict] | None = None,
    fast_seeds: int = 1,
    argv: Sequence[str] | None = None,
) -> argparse.Namespace:
    """The arguments that scripts have, in one form.

    Args:
        description: The script's docstring.
        name: The script's name.
        data: Whether it trains on data.
        only: Parts that can be made on their own.
        methods: Methods that can be chosen.
        left_out: Those of them that are not run unless they are named.
        extra: Further arguments, as for `add_argument`.
        fast_seeds: Seeds in fast mode, unless given.
        argv: Arguments, by default those of the command line.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="a minute or two")
    parser.add_argument("--output-dir", type=Path, default=Path("runs") / name)
    if data:
        parser.add_argument("--data-dir", default=os.environ.get("KERAS_DP_DATA"))
        parser.add_argument("--epochs", type=int, help="at most so many")
        parser.add_argument("--examples", type=int, help="at most so many, to train on")
        parser.add_argument(
            "--cache-dir",
            type=Path,
            default=Path("runs/cache"),
            help="trainings in progress",
        )
        parser.add_argument(
            "--plan", action="store_true", help="list missing trainings, train nothing"
        )
        parser.add_argument(
            "--measure",
            action="store_true",
            help="list missing trainings, and time a few lots of each",
        )
        parser.add_argument(
            "--finished-only",
            action="store_true",
            help="draw finished trainings, train nothing",
        )
        parser.add_argument(
            "--seeds", type=int, help=f"runs of each; default 3, fast: {fast_seeds}"
        )
    if only:
        parser.add_argument("--only", nargs="+", choices=only, default=list(only))
    if methods:
        parser.add_argument(
            "--methods",
            nargs="+",
            choices=methods,
            default=[method for method in methods if method not in left_out],
        )
    for flag, settings in (extra or {}).items():
        parser.add_argument(flag, **settings)
    arguments = parser.parse_args(argv)
    arguments.command = _command(parser, arguments, name)
    if data:
        arguments.seeds = arguments.seeds or (fast_seeds if arguments.fast else 3)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    return arguments


# What changes neither the trainings nor what is drawn of them.
_NOT_RECORDED = ("cache_dir", "plan", "measure", "finished_only")


def _command(parser: argparse.ArgumentParser, arguments: Any, name: str) -> str:
    """How to make the same again, without the paths of this machine."""
    words = ["python", "-m", f"benchmarks.papers.{name}"]
    for action in parser._actions:
        value = getattr(arguments, action.dest, None)
        if action.dest == "data_dir":
            # From the environment it counts as well; fast mode does not look at it.
            words += [] if arguments.fast else ["--data-dir", "DIR"]
        elif action.dest in _NOT_RECORDED or value in (None, action.default):
            continue
        elif isinstance(value, bool):
            words.append(action.option_strings[0])
        elif isinstance(value, list):
            words += [action.option_strings[0], *map(str, value)]
        elif isinstance(value, Path) and value.is_absolute():
            words += [action.option_strings[0], "OUT"]
        else:
            words += [action.option_strings[0], str(value)]
    return shlex.join(words)


def limited(arguments: argparse.Namespace, epochs: int, fast: int) -> int:
    """The paper's number of epochs, or as many as there is time for."""
    epochs = fast if arguments.fast else epochs
    return min(epochs, arguments.epochs or epochs)


# Data ---------------------------------------------------------------------


def load(name: str, arguments: argparse.Namespace, examples: int | None = None):
    """The data set, or the embedded digits in fast mode.

    Args:
        name: As for `keras_dp_ext.data.load`.
        arguments: Of the script.
        examples: How many the paper trains on, if not all.
    """
    from keras_dp_ext.data import load as load_data

    data = load_data("digits" if arguments.fast else name, arguments.data_dir)
    limits = [n for n in (examples, arguments.examples) if n is not None]
    count = min([len(data.x_train), *limits])
    return dataclasses.replace(
        data, x_train=data.x_train[:count], y_train=data.y_train[:count]
    )


def load_or_skip(name: str, part: str, arguments: argparse.Namespace, **options):
    """The data set, or `None` with a line that says so where the user has none."""
    if name == "svhn_cropped" and arguments.fast:
        print(f"{part} skipped: needs svhn_cropped (not in fast mode)", flush=True)
        return None
    try:
        return load(name, arguments, **options)
    except FileNotFoundError:
        print(f"{part} skipped: needs {name} in --data-dir", flush=True)
        return None


def title_of(data: Any, paper: str) -> str:
    """The data set for the title of a figure."""
    name = PAPER_DATA[paper][0]
    return f"digits for {name}" if data.name == "digits" else name


def size_note(
    data: Any,
    paper: str,
    cases: Sequence[Case],
    rows: Sequence[dict],
    paper_epochs: int | None,
    paper_examples: int | None = None,
    other: Sequence[str] = (),
) -> str:
    """What was run, and in what it is smaller than the paper.

    Args:
        data: What was trained on.
        paper: The paper's data set.
        cases: What belongs into the figure.
        rows: What was trained of it, from `run_cases`.
        paper_epochs: Epochs of the paper; `None` where it does not say.
        paper_examples: Training examples of the paper, if not all.
        other: Further differences in size.
    """
    name, total = PAPER_DATA[paper]
    total = paper_examples or total
    count = len(data.x_train)
    epochs = max((row["epoch"] or 0 for row in rows), default=0)
    smaller = list(other)
    if data.name == "digits":
        smaller.append(
            f"{count:,} embedded digits in place of {name} ({total:,}), with a network "
            "to match"
        )
    elif count < total:
        smaller.append(f"{count:,} of {total:,} training examples ({data.note})")
    if paper_epochs is not None and epochs < paper_epochs:
        smaller.append(f"{epochs} of {paper_epochs} epochs")
    seeds = _seeds_note(cases, rows)
    if smaller:
        return f"Smaller than in the paper: {'; '.join(smaller)}. {seeds}"
    if paper_epochs is None:
        return f"{count:,} examples, as in the paper. {seeds}"
    return f"Size of the paper: {count:,} examples, {epochs} epochs. {seeds}"


def size_tag(
    data: Any,
    paper: str,
    cases: Sequence[Case],
    rows: Sequence[dict],
    paper_epochs: int | None,
    paper_examples: int | None = None,
) -> str:
    """The size of what is drawn, for the second line of a title."""
    total = paper_examples or PAPER_DATA[paper][1]
    count, epochs = len(data.x_train), max(row["epoch"] or 0 for row in rows)
    few = paper_epochs is not None and epochs < paper_epochs
    words = [f"{epochs} of {paper_epochs} epochs" if few else f"{epochs} epochs"]
    if data.name != "digits" and count < total:
        words.append(f"{count:,} of {total:,} images")
    seeds = len({row["seed"] for row in rows})
    words.append("1 seed" if seeds == 1 else f"{seeds} seeds")
    shown = {tuple(row[key] for key in cases[0].labels) for row in rows}
    if left := len({tuple(case.labels.values()) for case in cases}) - len(shown):
        words.append(f"{left} of {left + len(shown)} settings not trained yet")
    return ", ".join(words)


def _seeds_note(cases: Sequence[Case], rows: Sequence[dict]) -> str:
    """How many trainings each case has, and which case has none yet."""
    by_case = (
        {"": len({row["seed"] for row in rows})}
        if not cases
        else {
            case.name: len(
                {
                    row["seed"]
                    for row in rows
                    if all(row[key] == value for key, value in case.labels.items())
                }
            )
            for case in cases
        }
    )
    trained = {name: count for name, count in by_case.items() if count}
    if len(set(trained.values())) == 1:
        count = next(iter(trained.values()))
        note = (
            f"{count} seeds each; errors are standard deviations over them."
            if count > 1
            else "One seed each: nothing is known about the spread."
        )
    else:
        each = ", ".join(f"{name} {count}" for name, count in trained.items())
        note = f"Seeds: {each}; errors are standard deviations over them."
    left = [name for name, count in by_case.items() if not count]
    return note + (f" Not trained yet: {'; '.join(left)}." if left else "")


# Figures over seeds -------------------------------------------------------


def spread(values: Sequence[float]) -> float | None:
    """Standard deviation over seeds; of a single one nothing is known."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def mean_curves(
    rows: Sequence[dict], keys: Sequence[str], x: str = "epoch"
) -> list[dict[str, Any]]:
    """Mean and standard deviation over the seeds, for each label and place `x`."""
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        if row[x] is not None:  # Between epochs there is only a step.
            groups.setdefault(tuple(row[key] for key in (*keys, x)), []).append(row)
    return [
        {
            **dict(zip((*keys, x), group, strict=True)),
            "accuracy_mean": float(np.mean([row["accuracy"] for row in own])),
            "accuracy_std": spread([row["accuracy"] for row in own]),
            "seeds": len(own),
            "epsilon": max(
                (e for row in own if (e := row["epsilon"]) is not None), default=None
            ),
            "published_epsilon": own[0]["published_epsilon"],
        }
        for group, own in groups.items()
    ]


def last_epochs(rows: Sequence[dict], keys: Sequence[str]) -> list[dict[str, Any]]:
    """Mean and deviation of the last epoch of every case.

    `best_mean` is the mean of each seed's best epoch: what some papers report, and
    what no private training may choose by looking.
    """
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    summary = []
    for own in groups.values():
        own = [row for row in own if row["epoch"] is not None]
        end = max(row["epoch"] for row in own)
        (last,) = mean_curves([row for row in own if row["epoch"] == end], keys)
        best = [
            max(row["accuracy"] for row in own if row["seed"] == seed)
            for seed in {row["seed"] for row in own}
        ]
        summary.append({**last, "best_mean": float(np.mean(best))})
    return summary


def told(row: dict) -> str:
    """A mean with its deviation, in words."""
    error = row["accuracy_std"]
    return f"{row['accuracy_mean']:.1%}" + (f" (± {error:.1%})" if error else "")


def short(epsilon: float | None) -> str:
    """Epsilon in three digits, or as a power of ten where it means nothing."""
    if epsilon is None or math.isinf(epsilon):
        return "infinite"
    if epsilon < 1e4:
        return f"{epsilon:.3g}" if epsilon < 100 else f"{epsilon:.0f}"
    return f"{epsilon:.0e}".replace("e+0", "e")


# Drawing ------------------------------------------------------------------

# Okabe and Ito: distinct for all eyes. What has no guarantee at its price is dashed.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31")
_OWN_COLOURS = {"DP-SGD": "#333333", "unperturbed": "#999999"}


def new_axes(columns: int = 1, width: float = 5.6) -> Sequence[Any]:
    """Axes of a figure that needs no display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, 4.1), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(alpha=0.25, linewidth=0.6)
        one.set_axisbelow(True)
    return axes


def styles(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour, line and marker of every label."""
    colours, markers = iter(_COLOURS), itertools.cycle("osD^vPX")
    result = {}
    for label in dict.fromkeys(labels):
        own = next((c for k, c in _OWN_COLOURS.items() if label.startswith(k)), None)
        loose = "as printed" in label or label == "unperturbed"
        result[label] = {
            "color": own or next(colours, "#666666"),
            "linestyle": "--" if loose else "-",
            "marker": next(markers),
        }
    return result


def draw_curves(
    axes: Any,
    rows: Sequence[dict],
    key: str,
    x: str = "epoch",
    among: Sequence[str] = (),
) -> None:
    """Mean accuracy with a band of one standard deviation over the seeds.

    Args:
        axes: Where to.
        rows: From `run_cases`.
        key: The column that names a curve.
        x: The column of the horizontal axis.
        among: All labels, so that each looks the same in figures that show a part.
    """
    means = mean_curves(rows, [key], x)
    shown = dict.fromkeys(row[key] for row in means)
    looks = styles(among or list(shown))
    for label in shown:
        style = looks[label]
        own = sorted((row for row in means if row[key] == label), key=lambda r: r[x])
        places = [row[x] for row in own]
        middle = [row["accuracy_mean"] for row in own]
        end = next(e for row in reversed(own) if (e := row["epsilon"]) is not None)
        price = f"ε {short(end)}" if math.isfinite(end) else "no privacy"
        # Markers at other places for each curve: some lie on top of each other.
        each = max(1, len(own) // 6)
        first = list(shown).index(label) * each // len(shown)
        (line,) = axes.plot(
            places,
            middle,
            label=f"{label} ({price}): {told(own[-1])}",
            linewidth=1.6,
            markersize=4.5,
            markevery=(first, each),
            **style,
        )
        # A curve that is the beginning of a longer one would be hidden by it.
        line.set_zorder(2 + 1 / (1 + len(own)))
        axes.plot(places[-1:], middle[-1:], style["marker"], color=style["color"])
        draw_band(axes, own, style["color"], x)


def differences(rows: Sequence[dict], key: str, base: str) -> list[dict]:
    """Accuracy above the base's at the same seed and epoch, without what lacks one.

    Equal seeds are equal initial weights: their differences spread less than the
    accuracies do.
    """
    bases = {
        (row["seed"], row["epoch"]): row["accuracy"]
        for row in rows
        if row[key] == base and row["epoch"] is not None
    }
    return [
        {**row, "accuracy": row["accuracy"] - bases[row["seed"], row["epoch"]]}
        for row in rows
        if row[key] != base and (row["seed"], row["epoch"]) in bases
    ]


def draw_differences(axes: Any, rows: Sequence[dict], key: str, base: str) -> None:
    """Means of `differences` over epochs, in points, with their deviations.

    Args:
        axes: Where to.
        rows: From `run_cases`.
        key: The column that names a curve.
        base: The curve that the others are compared with.
    """
    looks = styles([row[key] for row in rows])
    means = mean_curves(differences(rows, key, base), [key])
    shown = dict.fromkeys(row[key] for row in means)
    for number, label in enumerate(shown):
        own = sorted((r for r in means if r[key] == label), key=lambda r: r["epoch"])
        # At most ten bars a curve, side by side.
        own = own[:: -max(1, len(own) // 10)][::-1]
        apart = (own[-1]["epoch"] - own[0]["epoch"]) / max(1, 12 * len(own))
        axes.errorbar(
            [row["epoch"] + apart * (number - len(shown) / 2) for row in own],
            [100 * row["accuracy_mean"] for row in own],
            yerr=[100 * (row["accuracy_std"] or 0.0) for row in own],
            label=label,
            markersize=4.5,
            capsize=2,
            linewidth=1.2,
            **looks[label],
        )
    axes.axhline(0, color="#333333", linewidth=0.8)


def draw_band(axes: Any, means: Sequence[dict], colour: str, x: str = "epoch") -> None:
    """A band of one standard deviation over the seeds around a curve's means."""
    middle = np.array([row["accuracy_mean"] for row in means])
    error = np.array([row["accuracy_std"] or 0.0 for row in means])
    places = [row[x] for row in means]
    low, high = np.clip([middle - error, middle + error], 0.0, 1.0)
    axes.fill_between(places, low, high, color=colour, alpha=0.14, linewidth=0)


def draw_points(axes: Any, summary: Sequence[dict], key: str, x: str) -> None:
    """Mean accuracy over a setting, with error bars of one standard deviation."""
    for label, style in styles([row[key] for row in summary]).items():
        own = sorted((row for row in summary if row[key] == label), key=lambda r: r[x])
        axes.errorbar(
            [row[x] for row in own],
            [row["accuracy_mean"] for row in own],
            yerr=[row["accuracy_std"] or 0.0 for row in own],
            label=label,
            markersize=4.5,
            capsize=3,
            linewidth=1.6,
            **style,
        )


def finish(
    axes: Any,
    title: str,
    xlabel: str,
    ylabel: str = "test accuracy",
    size: str = "",
    **legend: Any,
) -> None:
    """Title with the size of what is drawn, labels, legend; accuracies in percent."""
    axes.set_title(f"{title}\n{size}" if size else title, fontsize=11)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    for axis, label in ((axes.xaxis, xlabel), (axes.yaxis, ylabel)):
        if label.startswith(("accuracy", "test accuracy")):
            from matplotlib.ticker import PercentFormatter

            axis.set_major_formatter(PercentFormatter(1.0))
            axis.get_major_locator().set_params(nbins=6)
    axes.legend(**{"fontsize": 8, "framealpha": 0.8, "edgecolor": "none", **legend})


def log_axis(axes: Any, ticks: Sequence[float]) -> None:
    """A logarithmic axis that is labelled with plain numbers."""
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def mark(
    axes: Any,
    x: float,
    y: float,
    text: str,
    offset: tuple[float, float] = (6, 6),
    colour: str = "#E69F00",
) -> None:
    """What the paper reports, as a star."""
    axes.plot(x, y, marker="*", markersize=11, color=colour, zorder=5)
    axes.annotate(text, (x, y), textcoords="offset points", xytext=offset, fontsize=8)


# Outputs ------------------------------------------------------------------


def nothing_to_draw(arguments: argparse.Namespace, rows: Sequence[dict]) -> bool:
    """Whether the figure has to wait: a plan was asked for, or nothing is finished."""
    if arguments.plan or arguments.measure:
        return True
    if not rows:
        print("No training of this figure is finished.", flush=True)
    return not rows


def write(
    arguments: argparse.Namespace,
    name: str,
    rows: Sequence[dict],
    figure: Any,
    paragraph: str,
) -> None:
    """Writes CSV, PNG and the paragraph with its command, and prints the latter."""
    directory = arguments.output_dir
    # Another process may read the table of learning rates meanwhile.
    unfinished = directory / f"{name}.{os.getpid()}.part"
    with open(unfinished, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=rows[0], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: _rounded(v) for k, v in row.items()})
    unfinished.replace(directory / f"{name}.csv")
    figure.savefig(directory / f"{name}.png", dpi=150)
    text = textwrap.fill(" ".join(paragraph.split()), 88)
    (directory / f"{name}.md").write_text(f"{text}\n\nCommand: {arguments.command}\n")
    print(f"{text}\n", flush=True)


def _rounded(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
