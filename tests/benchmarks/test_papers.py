"""The scripts of benchmarks/papers: their outputs, resumption, and limits."""

import csv
import dataclasses
import importlib
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from benchmarks import models
from benchmarks.papers import common, redraw, run_all, runs
from keras_dp_ext.data import load
from keras_dp_ext.data.sets.data_set import DataSet


def parse(tmp_path, *argv, **options):
    return common.parse_arguments(
        "A script.",
        "script",
        argv=["--output-dir", str(tmp_path), *argv],
        **options,
    )


def run(monkeypatch, name: str, *argv: str) -> None:
    """A script as the command line starts it."""
    module = importlib.import_module(f"benchmarks.papers.{name}")
    monkeypatch.setattr(sys, "argv", [name, *argv])
    runs._in_memory.clear()
    module.main()


def read(path) -> list[dict]:
    with open(path) as file:
        return list(csv.DictReader(file))


@pytest.fixture
def data_dir(tmp_path):
    """A directory with a made-up SVHN."""
    rng = np.random.default_rng(0)
    directory = tmp_path / "data"
    directory.mkdir()
    np.savez(
        directory / "svhn_cropped.npz",
        x_train=rng.integers(0, 256, (64, 32, 32, 3), dtype=np.uint8),
        y_train=rng.integers(0, 10, 64, dtype=np.uint8),
        x_test=rng.integers(0, 256, (8, 32, 32, 3), dtype=np.uint8),
        y_test=rng.integers(0, 10, 8, dtype=np.uint8),
    )
    return directory


def test_recorded_command_has_no_path_of_this_machine(tmp_path):
    arguments = parse(tmp_path, "--data-dir", str(tmp_path), "--seeds", "2")
    assert str(tmp_path) not in arguments.command
    assert arguments.command.endswith("--output-dir OUT --data-dir DIR --seeds 2")


def test_recorded_command_quotes_names_of_methods(tmp_path):
    arguments = parse(tmp_path, "--methods", "w = 1", "--fast", methods=["w = 1", "x"])
    assert "--fast" in arguments.command and "'w = 1'" in arguments.command
    assert "DIR" not in arguments.command


def rows_of(seeds: int, epochs: int) -> list[dict]:
    return [
        {"method": "DP-SGD", "seed": seed, "epoch": epoch + 1}
        for seed in range(seeds)
        for epoch in range(epochs)
    ]


def case_of(method: str) -> common.Case:
    return common.Case({"method": method}, lambda data: None, lambda: None, 1, 1)


def test_size_note_tells_every_shortage():
    note = common.size_note(
        load("digits"), "mnist", [case_of("DP-SGD")], rows_of(1, 5), paper_epochs=60
    )
    assert "Smaller than in the paper" in note
    assert "1,438 embedded digits" in note and "5 of 60 epochs" in note
    assert "One seed each" in note


def test_size_note_claims_the_papers_size_only_when_nothing_is_missing():
    images = np.zeros([60_000, 1], np.uint8)
    labels = np.zeros([60_000], np.uint8)
    full = DataSet("mnist", images, labels, images, labels, 10)
    cases = [case_of("DP-SGD")]
    note = common.size_note(full, "mnist", cases, rows_of(3, 60), 60)
    assert note.startswith("Size of the paper") and "3 seeds each" in note
    assert "59 of 60" in common.size_note(full, "mnist", cases, rows_of(3, 59), 60)


def test_title_tells_every_shortage():
    data = load("digits")
    mnist = dataclasses.replace(data, name="mnist")
    cases = [case_of("DP-SGD"), case_of("b")]
    tag = common.size_tag(mnist, "mnist", cases, rows_of(seeds=2, epochs=3), 60)
    count = f"{len(data.x_train):,} of 60,000 images"
    missing = "1 of 2 settings not trained yet"
    assert tag == f"3 of 60 epochs, {count}, 2 seeds, {missing}"
    full = common.size_tag(data, "mnist", cases[:1], rows_of(seeds=1, epochs=60), 60)
    assert full == "60 epochs, 1 seed"


def test_redrawn_figure_shows_every_row_of_its_csv():
    rows = redraw.read(redraw.RESULTS / "xiang_figure3a.csv")
    axes, differences = redraw.xiang_figure3a(rows).axes
    assert "6 of 60 epochs, 3 seeds" in axes.get_title()
    methods = {row["method"] for row in rows}
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert len(legend) == len(methods)
    for row in common.mean_curves(rows, ["method"]):
        (line,) = (
            one
            for one in axes.get_lines()
            if str(one.get_label()).startswith(f"{row['method']} (")
        )
        place = list(line.get_xdata()).index(row["epoch"])
        assert line.get_ydata()[place] == pytest.approx(row["accuracy_mean"])
    # The other methods but the unperturbed one.
    assert len(differences.get_legend().get_texts()) == len(methods) - 2


def test_differences_are_those_of_equal_seeds():
    rows = [
        {"m": method, "seed": seed, "epoch": 1, "accuracy": accuracy}
        for method, seed, accuracy in (
            *(("base", 0, 0.5), ("base", 1, 0.7)),
            *(("a", 0, 0.6), ("a", 1, 0.9), ("a", 2, 0.1)),
        )
    ]
    found = common.differences(rows, "m", "base")
    assert [row["accuracy"] for row in found] == pytest.approx([0.1, 0.2])


def test_size_note_counts_the_seeds_of_each_method():
    cases = [case_of("DP-SGD"), case_of("encoding"), case_of("tanh")]
    rows = [*rows_of(2, 60), {"method": "tanh", "seed": 0, "epoch": 60}]
    note = common.size_note(load("digits"), "mnist", cases, rows, 60)
    assert "DP-SGD 2, tanh 1" in note and "Not trained yet: encoding." in note


def test_spread_of_one_seed_is_unknown_not_zero():
    rows = [
        {"m": "a", "seed": seed, "epoch": epoch, "accuracy": accuracy}
        | {"epsilon": 1.0, "published_epsilon": None}
        for seed, epoch, accuracy in (
            (0, 1, 0.9),
            (0, 2, 0.5),
            (1, 1, 0.2),
            (1, 2, 0.7),
        )
    ]
    (both,) = common.last_epochs(rows, ["m"])
    assert both["accuracy_mean"] == pytest.approx(0.6)
    assert both["accuracy_std"] == pytest.approx(np.std([0.5, 0.7], ddof=1))
    assert both["best_mean"] == pytest.approx(0.8)
    (one,) = common.last_epochs(rows[:2], ["m"])
    assert one["accuracy_std"] is None


def test_every_script_is_run_by_run_all():
    scripts = {path.stem for path in Path(common.__file__).parent.glob("*.py")}
    shared = {
        "common",
        "noise_direction",
        "redraw",
        "run_all",
        "run_files",
        "runs",
        "step_times",
        "tuning",
    }
    assert scripts - shared == set(run_all.SCRIPTS)


@pytest.mark.parametrize("name", ["lenet", "mnist_cnn"])
def test_models_divide_pixels_by_their_scale(name):
    images = np.full([2, 28, 28, 1], 255, np.uint8)
    labels = np.zeros([2], np.uint8)
    data = DataSet("mnist", images, labels, images, labels, 10, scale=255.0)
    model = models.build(name, data)
    plain = getattr(models, name)()
    plain.set_weights(model.get_weights())
    np.testing.assert_allclose(
        model(images), plain(np.ones([2, 28, 28, 1], np.float32)), rtol=1e-5, atol=1e-6
    )


def test_errata_figure_writes_csv_png_and_a_paragraph_with_its_command(
    monkeypatch, tmp_path
):
    run(
        monkeypatch,
        "errata_directional",
        *("--fast", "--output-dir", str(tmp_path)),
    )
    text = (tmp_path / "errata_directional.md").read_text()
    command = "Command: python -m benchmarks.papers.errata_directional --fast"
    assert command in text and str(tmp_path) not in text
    assert float(read(tmp_path / "errata_directional.csv")[0]["epsilon_median"]) > 500
    assert (tmp_path / "errata_directional.png").stat().st_size > 10_000


def test_errata_panels_show_what_is_drawn(monkeypatch, tmp_path):
    run(monkeypatch, "errata", *("--fast", "--output-dir", str(tmp_path)))
    ends = {}
    for path in sorted(tmp_path.glob("*.csv")):
        assert path.with_suffix(".png").stat().st_size > 10_000
        assert "Command: python" in path.with_suffix(".md").read_text()
        ends |= {(row["panel"], row["series"]): float(row["y"]) for row in read(path)}
    assert ends["lemma 4", "as printed, 1/(1 - α)"] < 0
    assert ends["lemma 4", "corrected, 1/(α - 1)"] == pytest.approx(
        ends["lemma 4", "dp_accounting"]
    )
    assert (
        ends["sampling", "with replacement"]
        > 2 * (ends["sampling", "Poisson: what is analysed"])
    )
    assert ends["sensitivity", "proven: sensitivity √n"] > 1e8
    assert ends["direction", "clip of the average moves by"] == 2.0
    assert ends["pruning", "with the example, as printed"] > 0.95
    assert ends["pruning", "without it"] < 0.15


def test_private_and_plain_curves_carry_their_epsilon(monkeypatch, tmp_path):
    run(
        monkeypatch,
        "xiang_figures",
        *("--fast", "--epochs", "1", "--only", "3a", "--output-dir", str(tmp_path)),
        *("--methods", "unperturbed", "DP-SGD", "as printed, w = 1"),
        "as printed, noise for w",
    )
    rows = {row["method"]: row for row in read(tmp_path / "xiang_figure3a.csv")}
    assert rows["unperturbed"]["epsilon"] == "inf"
    assert 0.9 < float(rows["DP-SGD"]["epsilon"]) <= 1.0
    assert float(rows["as printed, w = 1"]["published_epsilon"]) == pytest.approx(1.0)
    text = (tmp_path / "xiang_figure3a.md").read_text().replace("\n", " ")
    assert "1 of 60 epochs" in text
    # What it changes that w is its noise alone is told, with the reason.
    assert "Pinsker" in text and "sqrt(T) / (2 m), here 0.012" in text
    assert float(rows["as printed, noise for w"]["epsilon"]) > 100


def test_missing_svhn_is_skipped_with_one_line(monkeypatch, tmp_path, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()

    def unavailable(name, data_dir):
        raise FileNotFoundError(name)

    monkeypatch.setattr("keras_dp_ext.data.load", unavailable)
    run(
        monkeypatch,
        "xiang_figures",
        *("--only", "3b", "--data-dir", str(empty), "--output-dir", str(tmp_path)),
    )
    assert capsys.readouterr().out == (
        "Figure 3b skipped: needs svhn_cropped in --data-dir\n"
    )
    assert not list(tmp_path.glob("*.csv"))


def test_interrupted_command_goes_on_from_finished_runs(
    monkeypatch, tmp_path, data_dir, capsys
):
    arguments = (
        *("--only", "3b", "--methods", "unperturbed", "--epochs", "1", "--width", "1"),
        *("--data-dir", str(data_dir), "--output-dir", str(tmp_path)),
        *("--cache-dir", str(tmp_path / "cache")),
    )
    run(monkeypatch, "xiang_figures", *arguments, "--seeds", "1")
    first = read(tmp_path / "runs" / "xiang_svhn_cropped.csv")
    capsys.readouterr()
    run(monkeypatch, "xiang_figures", *arguments, "--seeds", "2")
    assert "[1/1] unperturbed, 10, seed 1 (1 of 2 finished" in capsys.readouterr().out
    second = read(tmp_path / "runs" / "xiang_svhn_cropped.csv")
    assert second[0] == first[0] and [row["seed"] for row in second] == ["0", "1"]
    text = (tmp_path / "xiang_figure3b.md").read_text().replace("\n", " ")
    assert "64 of 73,257 training examples" in text
    assert "alexnet of width 1 instead of 64" in text


def test_jobs_give_every_command_to_each_process_and_share_the_cores(
    monkeypatch, tmp_path
):
    started = []

    def record(command, env, check):
        started.append((" ".join(command[2:]), env["TF_NUM_INTRAOP_THREADS"]))
        return types.SimpleNamespace(returncode=0)

    monkeypatch.setattr(run_all.subprocess, "run", record)
    monkeypatch.setattr(run_all.os, "cpu_count", lambda: 4)
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    only = ("--only", "abadi_figure3", "--output-dir", str(tmp_path))
    argv = ["run_all", "--full", "--jobs", "2", *only]
    monkeypatch.setattr(sys, "argv", argv)
    assert run_all.main() == 0
    commands = [command for command, _ in started]
    assert len(commands) == 4 and len(set(commands)) == 2
    assert {threads for _, threads in started} == {"2"}


@pytest.fixture
def made_up_sets(tmp_path):
    """A directory with a small MNIST and CIFAR-10."""
    rng = np.random.default_rng(0)
    for name, shape in (("mnist", (28, 28)), ("cifar10_subset", (32, 32, 3))):
        sizes = {"train": 600, "test": 20}
        arrays = {
            f"x_{part}": rng.integers(0, 256, (count, *shape), dtype=np.uint8)
            for part, count in sizes.items()
        } | {
            f"y_{part}": rng.integers(0, 10, count, dtype=np.uint8)
            for part, count in sizes.items()
        }
        np.savez(tmp_path / f"{name}.npz", **arrays)
    return tmp_path


@pytest.mark.parametrize("command", run_all.FULL, ids=" ".join)
def test_plan_of_every_full_command_names_what_is_missing(
    monkeypatch, tmp_path, made_up_sets, capsys, command
):
    name, *rest = command
    options = ("--data-dir", str(made_up_sets), "--output-dir", str(tmp_path / "out"))
    run(monkeypatch, name, *rest, *options, "--plan")
    out = capsys.readouterr().out
    # The last line of each store.
    assert "of" in out and "h left, and" in out and "that nobody has timed" in out
    assert not list((tmp_path / "out").glob("*.csv"))


def test_whole_plan_is_made_in_one_process(monkeypatch, tmp_path, made_up_sets, capsys):
    monkeypatch.setattr(run_all.subprocess, "run", None)
    # What it sets is undone afterwards.
    monkeypatch.setenv("KERAS_DP_DATA", "")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    options = ("--data-dir", str(made_up_sets), "--output-dir", str(tmp_path / "out"))
    only = ("--only", "abadi_figure3", "abadi_figure6")
    monkeypatch.setattr(sys, "argv", ["run_all", "--full", "--plan", *only, *options])
    assert run_all.main() == 0
    out = capsys.readouterr().out
    assert "abadi_figure3: 0 of 9 trainings are finished" in out
    assert "abadi_figure6: 0 of 3 trainings are finished" in out
