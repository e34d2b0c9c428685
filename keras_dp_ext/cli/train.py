"""`keras-dp train`: from a data set to a private model in one command."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_dp_ext.cli import _settings
from keras_dp_ext.cli._settings import Settings

if TYPE_CHECKING:
    from keras_dp_ext.cli._experiment import Experiment

_EXAMPLES = """examples:
  keras-dp train                          (digits, embedded; less than a minute)
  keras-dp train --dataset mnist --target-epsilon 3 --delta 1e-5
  keras-dp train --dataset fashion_mnist --model scatter_linear --accountant pld
  keras-dp train --dataset mnist --model pca_mlp --target-epsilon 2
  keras-dp train --dataset adult --mechanism encoding --noise student-t
  keras-dp train --dataset my.npz --model my_module:my_function
  keras-dp train --output-dir runs/digits --resume --epochs 60
"""

MODEL_FILE = "model.keras"
HISTORY_FILE = "history.csv"
PRIVACY_FILE = "privacy.json"
SETTINGS_FILE = "settings.json"
FIGURE_FILE = "training.png"


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "train",
        help="train a model privately",
        description="Trains a model privately. Writes the model (model.keras), test "
        "accuracy and epsilon of every epoch (history.csv, training.png), and ledger "
        "and privacy statement (privacy.json).",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _settings.add_arguments(parser)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output-dir", metavar="DIR", help="default: runs/DATASET-MECHANISM"
    )
    output.add_argument(
        "--resume",
        action="store_true",
        help="continue the training in the output directory, with its settings; only "
        "--epochs may be changed",
    )
    output.add_argument(
        "--overwrite",
        action="store_true",
        help="replace what the output directory holds of an earlier training",
    )
    output.add_argument("--json", action="store_true", help="print a JSON summary")
    output.add_argument("--quiet", action="store_true", help="no progress")


def run(arguments: argparse.Namespace) -> int:
    """Trains; returns 130 if it was interrupted."""
    directory = Path(
        arguments.output_dir
        or f"runs/{Path(arguments.dataset).stem}-{arguments.mechanism}"
    )
    if arguments.resume:
        settings = _resumed_settings(arguments, directory)
    else:
        settings = Settings.from_arguments(arguments)
        _prepare(directory, arguments.overwrite)
    # TensorFlow starts here, after everything that can be wrong without it.
    from keras_dp_ext.cli import _experiment, _report

    data = _experiment.load_data(settings)
    # JSON alone belongs on stdout then; progress moves to stderr.
    stdout = contextlib.redirect_stdout(sys.stderr)
    with stdout if arguments.json else contextlib.nullcontext():
        model = _saved_model(directory, settings, data) if arguments.resume else None
        experiment = _experiment.Experiment(settings, data, model)
        settings.write(directory / SETTINGS_FILE)
        if not arguments.quiet:
            print(_introduction(experiment))
        started = time.monotonic()
        interrupted = _fit(experiment, directory, arguments.quiet)
        seconds = time.monotonic() - started
        summary = _write(experiment, directory, seconds, interrupted)
    if arguments.json:
        print(json.dumps(summary, indent=2))
    else:
        print(_conclusion(experiment, summary, directory))
    history = _report.read_history(directory / HISTORY_FILE)
    if history:
        title = f"{data.name}, {settings.mechanism}, delta {experiment.delta:g}"
        _report.plot_training(history, title, directory / FIGURE_FILE)
    return 130 if interrupted else 0


def _resumed_settings(arguments: argparse.Namespace, directory: Path) -> Settings:
    """The settings of the training that is continued, with more epochs if asked."""
    import dataclasses

    if arguments.overwrite:
        raise ValueError("Pass `--resume` or `--overwrite`, not both.")
    settings = Settings.read(directory / SETTINGS_FILE)
    asked, default = Settings.from_arguments(arguments), Settings()
    for field in dataclasses.fields(Settings):
        value = getattr(asked, field.name)
        unchanged = value in (
            getattr(default, field.name),
            getattr(settings, field.name),
        )
        if field.name not in ("epochs", "data_dir") and not unchanged:
            raise ValueError(
                f"Argument `--{field.name.replace('_', '-')}` must not change when a "
                f"training is resumed. Received: {value}, after "
                f"{getattr(settings, field.name)}"
            )
    return dataclasses.replace(
        settings,
        epochs=asked.epochs or settings.epochs,
        data_dir=asked.data_dir or settings.data_dir,
    )


def _prepare(directory: Path, overwrite: bool) -> None:
    """Makes the directory, and sees that files can be written into it."""
    ours = (MODEL_FILE, HISTORY_FILE, PRIVACY_FILE, SETTINGS_FILE, FIGURE_FILE)
    old = [directory / name for name in ours if (directory / name).exists()]
    if old and not overwrite:
        raise ValueError(
            f"{directory} holds an earlier training. Continue it with `--resume`, "
            "replace it with `--overwrite`, or choose another `--output-dir`."
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path in old:
            path.unlink()
        probe = directory / SETTINGS_FILE
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(
            f"Argument `--output-dir` must be a directory that can be written. "
            f"Received: {directory} ({error.strerror})"
        ) from None


def _saved_model(directory: Path, settings: Settings, data: Any):
    """The model of the output directory, with the budget that it has spent."""
    import keras

    from keras_dp_ext.cli import _experiment
    from keras_dp_ext.presets import build_model, find_recipe

    path = directory / MODEL_FILE
    if not path.exists():
        raise ValueError(
            f"Argument `--resume` needs {path}, and there is none: the training was "
            "stopped before its first update was saved. Start it with `--overwrite`."
        )
    recipe = find_recipe(data.name, settings.model, settings.mechanism, settings.budget)
    # Both register what a file of Keras names: the optimizer's class, own layers.
    _experiment.optimizer_class(
        settings.mechanism, settings.optimizer or recipe.optimizer
    )
    if settings.model is not None:
        build_model(settings.model, data)
    return keras.saving.load_model(path)


def _fit(experiment: Experiment, directory: Path, quiet: bool) -> bool:
    """Trains and saves. Returns whether Ctrl-C ended it."""
    from keras_dp_ext.cli import _report

    model, path = experiment.model, directory / MODEL_FILE
    # History first: a model on disk without its line is better than the reverse.
    callbacks = [
        _report.HistoryWriter(directory / HISTORY_FILE),
        _report.ModelWriter(path),
    ]
    verbose = 0 if quiet else 1 if sys.stdout.isatty() else 2
    interrupted = False
    try:
        if experiment.epochs_done < experiment.recipe.epochs:
            experiment.fit(callbacks, verbose)
    except KeyboardInterrupt:
        interrupted = True
        # Sums of an unfinished lot have no noise yet and must not be saved.
        model.optimizer.finalize_variable_values(model.trainable_variables)
    _report.save_model(model, path)
    return interrupted


def _write(
    experiment: Experiment, directory: Path, seconds: float, interrupted: bool
) -> dict[str, Any]:
    """Writes privacy.json; returns the summary."""
    from keras_dp_ext.cli import _report

    experiment.accountant.set_model(experiment.model)
    record = _report.privacy_record(experiment.accountant)
    _report.write_json(
        directory / PRIVACY_FILE, {**record, "data": experiment.data.note}
    )
    return {
        "dataset": experiment.data.name,
        "data": experiment.data.note,
        "model": experiment.recipe.model,
        "mechanism": experiment.settings.mechanism,
        "epsilon": record["epsilon"],
        "published_epsilon": record["published_epsilon"],
        "delta": record["delta"],
        "target_epsilon": record["target_epsilon"],
        "test_accuracy": experiment.test_accuracy(),
        "noise_multiplier": experiment.noise_multiplier,
        "epochs": experiment.epochs_done,
        "releases": record["releases"],
        "seconds": round(seconds, 1),
        "interrupted": interrupted,
        "output_dir": str(directory),
    }


def _introduction(experiment: Experiment) -> str:
    recipe, data, label = (
        experiment.recipe,
        experiment.data,
        experiment.lots.dp_sampling,
    )
    return (
        f"{data.name}: {len(data.x_train)} examples ({data.note}). Model "
        f"{recipe.model}, {experiment.model.count_params()} parameters. Mechanism "
        f"{experiment.settings.mechanism}, noise multiplier "
        f"{experiment.noise_multiplier:.4g}, {recipe.epochs} epochs of "
        f"{label.steps_per_epoch} lots of {recipe.batch_size} (Poisson)."
    )


def _conclusion(
    experiment: Experiment, summary: dict[str, Any], directory: Path
) -> str:
    lines = [
        f"Test accuracy {summary['test_accuracy']:.4f}, proven epsilon "
        f"{summary['epsilon']:.4g} at delta {summary['delta']:g}. Written to "
        f"{directory}."
    ]
    if summary["interrupted"]:
        lines.append("Interrupted. Continue with the same command and --resume.")
    return "\n".join(lines)
