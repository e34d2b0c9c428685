"""`keras-dp train`: from a data set to a private model in one command."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_dp_ext.cli import _settings
from keras_dp_ext.cli._figures import figure
from keras_dp_ext.cli._output import make_directory
from keras_dp_ext.cli._quiet import import_tensorflow
from keras_dp_ext.cli._settings import Settings

if TYPE_CHECKING:
    from keras_dp_ext.cli._experiment import Experiment

_EXAMPLES = """examples:
  keras-dp train                          (digits, embedded; less than a minute)
  keras-dp train --dataset mnist --target-epsilon 3 --delta 1e-5
      (99.0%; two minutes on one core: features and training)
  keras-dp train --dataset fashion_mnist --target-epsilon 3 --delta 1e-5
      (90.5%; as long)
  keras-dp train --dataset cifar10 --target-epsilon 3 --delta 1e-5
      (70%; three minutes on one core: features and training)
  keras-dp train --dataset mnist --model tanh_cnn     (a network on the images)
  keras-dp train --dataset mnist --model pca_mlp --target-epsilon 2
  keras-dp train --dataset adult --mechanism encoding --noise student-t
  keras-dp train --dataset table.csv --target column --target-epsilon 3
  keras-dp train --dataset table.csv --target column --user-column id
  keras-dp train --dataset my.npz --model my_module:my_function
  keras-dp train --resume                 (after Ctrl-C; the budget stays the same)
  keras-dp train --noise-multiplier 2 --resume --epochs 60
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
    directory = _directory(arguments)
    settings, former = _asked_for(arguments, directory)
    # TensorFlow starts here, after everything that can be wrong without it.
    import_tensorflow()
    # JSON alone belongs on stdout then; progress moves to stderr.
    stdout = contextlib.redirect_stdout(sys.stderr)
    with stdout if arguments.json else contextlib.nullcontext():
        experiment = _prepared(settings, former, directory)
        if not arguments.quiet:
            print(_introduction(experiment))
        started = time.monotonic()
        try:
            interrupted = _fit(experiment, directory, arguments.quiet)
        except ValueError:
            # Such as epochs that the budget does not allow: as if never asked for.
            if former is not None:
                former.write(directory / SETTINGS_FILE)
            raise
        seconds = time.monotonic() - started
        summary = _write(experiment, directory, seconds, interrupted)
    if arguments.json:
        print(json.dumps(summary, indent=2))
    else:
        print(_conclusion(experiment, summary, directory))
    _draw(experiment, directory)
    return 130 if interrupted else 0


def _directory(arguments: argparse.Namespace) -> Path:
    """Where everything is written."""
    data, mechanism = Path(arguments.dataset).stem, arguments.mechanism
    return Path(arguments.output_dir or f"runs/{data}-{mechanism.replace(':', '.')}")


def _asked_for(
    arguments: argparse.Namespace, directory: Path
) -> tuple[Settings, Settings | None]:
    """The settings of this training, and those of the one that it resumes, if any."""
    if arguments.resume and arguments.overwrite:
        raise ValueError("Pass `--resume` or `--overwrite`, not both.")
    if arguments.resume:
        former = Settings.read(directory / SETTINGS_FILE)
        return _resumed_settings(arguments, former), former
    settings = Settings.from_arguments(arguments)
    _prepare(directory, arguments.overwrite)
    return settings, None


def _prepared(
    settings: Settings, former: Settings | None, directory: Path
) -> Experiment:
    """Data, model and optimizer; writes the settings, as the recipe completes them."""
    from keras_dp_ext.cli import _experiment

    data = _experiment.load_data(settings)
    model = None if former is None else _saved_model(directory, settings, data)
    experiment = _experiment.Experiment(settings, data, model)
    if former is None:
        _remove_earlier(directory)
    # What the recipe chose, too: another version may have another default.
    chosen = experiment.recipe
    dataclasses.replace(
        settings, model=chosen.model, accountant=chosen.accountant
    ).write(directory / SETTINGS_FILE)
    return experiment


def _resumed_settings(arguments: argparse.Namespace, settings: Settings) -> Settings:
    """The settings of the training that is continued, with more epochs if asked."""
    asked, default = Settings.from_arguments(arguments), Settings()
    for field in dataclasses.fields(Settings):
        value = getattr(asked, field.name)
        unchanged = value in (
            getattr(default, field.name),
            getattr(settings, field.name),
        )
        if field.name not in ("epochs", "data_dir", "cache_dir") and not unchanged:
            raise ValueError(
                f"Argument `--{field.name.replace('_', '-')}` must not change when a "
                f"training is resumed. Received: {value}, after "
                f"{getattr(settings, field.name)}"
            )
    return dataclasses.replace(
        settings,
        epochs=asked.epochs or settings.epochs,
        data_dir=asked.data_dir or settings.data_dir,
        cache_dir=asked.cache_dir or settings.cache_dir,
    )


def _earlier(directory: Path) -> list[Path]:
    """What the directory holds of an earlier training."""
    ours = (MODEL_FILE, HISTORY_FILE, PRIVACY_FILE, SETTINGS_FILE, FIGURE_FILE)
    return [directory / name for name in ours if (directory / name).exists()]


def _prepare(directory: Path, overwrite: bool) -> None:
    """Makes the directory, and sees that files can be written into it."""
    if _earlier(directory) and not overwrite:
        raise ValueError(
            f"{directory} holds an earlier training. Continue it with `--resume`, "
            "replace it with `--overwrite`, or choose another `--output-dir`."
        )
    make_directory(directory)


def _remove_earlier(directory: Path) -> None:
    """Only once the new training can start: a typing error must not cost the old."""
    for path in _earlier(directory):
        path.unlink()


def _saved_model(directory: Path, settings: Settings, data: Any) -> Any:
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
    from keras_dp_ext.cli import _training_files

    model, path = experiment.model, directory / MODEL_FILE
    # The model first, and the ledger with it: an accuracy in the history of releases
    # that a resumed training knows nothing of would not be covered by its epsilon.
    callbacks = [
        _training_files.ModelWriter(path),
        _training_files.HistoryWriter(directory / HISTORY_FILE),
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
    _training_files.save_model(model, path)
    return interrupted


def _write(
    experiment: Experiment, directory: Path, seconds: float, interrupted: bool
) -> dict[str, Any]:
    """Writes privacy.json; returns the summary."""
    from keras_dp_ext.cli import _training_files
    from keras_dp_ext.reporting.record import versions

    experiment.accountant.set_model(experiment.model)
    record = _training_files.privacy_record(experiment.accountant)
    _training_files.write_json(
        directory / PRIVACY_FILE,
        {**record, "data": experiment.data.note, "versions": versions()},
    )
    return {
        "dataset": experiment.data.name,
        "data": experiment.data.note,
        "model": experiment.recipe.model,
        "mechanism": experiment.settings.mechanism,
        "epsilon": record["epsilon"],
        "published_epsilon": record["published_epsilon"],
        "delta": record["delta"],
        "unit": experiment.lots.dp_sampling.sampling.unit,
        "target_epsilon": record["target_epsilon"],
        "test_accuracy": experiment.test_accuracy(),
        "noise_multiplier": experiment.noise_multiplier,
        "epochs": experiment.epochs_done,
        "releases": record["releases"],
        "seconds": round(seconds, 1),
        "interrupted": interrupted,
        "output_dir": str(directory),
    }


def _draw(experiment: Experiment, directory: Path) -> None:
    """Accuracy and epsilon over the epochs, as a figure."""
    from keras_dp_ext.cli import _training_files
    from keras_dp_ext.reporting.record import read_history

    history = read_history(directory / HISTORY_FILE)
    if history:
        name, mechanism = experiment.data.name, experiment.settings.mechanism
        title = f"{name}, {mechanism}, delta {experiment.delta:g}"
        _training_files.write_figure(
            _training_files.plot_training, history, title, directory / FIGURE_FILE
        )


def _introduction(experiment: Experiment) -> str:
    recipe, data, label = (
        experiment.recipe,
        experiment.data,
        experiment.lots.dp_sampling,
    )
    of_people = label.sampling.unit == "person"
    people = f" of {label.num_examples} people" if of_people else ""
    return (
        f"{data.name}: {len(data.x_train)} examples{people} ({data.note}). Model "
        f"{recipe.model}, {experiment.model.count_params()} parameters. Mechanism "
        f"{experiment.settings.mechanism}, noise multiplier "
        f"{experiment.noise_multiplier:.4g}, {recipe.epochs} epochs of "
        f"{label.steps_per_epoch} lots of {recipe.batch_size}"
        f"{' people' if of_people else ''} (Poisson)."
    )


def _conclusion(
    experiment: Experiment, summary: dict[str, Any], directory: Path
) -> str:
    lines = [
        f"Test accuracy {summary['test_accuracy']:.4f}, proven epsilon "
        f"{figure(float(summary['epsilon']))} at delta {summary['delta']:g}. Written to "
        f"{directory}."
    ]
    if summary["interrupted"]:
        lines.append("Interrupted. Continue with the same command and --resume.")
    return "\n".join(lines)
