"""A CSV file of one's own, from the command."""

import json

import numpy as np
import pytest

import keras_dp_ext as dp


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["age,city,income,ill"]
    for _ in range(1500):
        age, city = int(rng.integers(18, 90)), rng.choice(["Rome", "Oslo", "Bonn"])
        income = "" if rng.random() < 0.1 else f"{rng.normal(3e4, 1e4):.2f}"
        ill = "yes" if age + (30 if city == "Oslo" else 0) > 65 else "no"
        lines.append(f"{age},{city},{income},{ill}")
    path = tmp_path / "people.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_table_trains_in_one_command(keras_dp, table, tmp_path):
    summary = keras_dp.json(
        *("train", "--dataset", table, "--target", "ill", "--target-epsilon", 3),
        *("--epochs", 15, "--batch-size", 100, "--output-dir", tmp_path / "out"),
    )
    assert 2.5 < summary["epsilon"] <= 3.0
    assert summary["test_accuracy"] > 0.7  # The majority has 0.5 to 0.6.
    privacy = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert "taken to be public" in privacy["data"]


def with_ids(table, tmp_path):
    header, *rows = table.read_text().splitlines()
    lines = [f"{row},p{number % 500}" for number, row in enumerate(rows)]
    path = tmp_path / "visits.csv"
    path.write_text("\n".join([f"{header},patient", *lines]) + "\n")
    return path


def test_people_take_turns_where_noise_is_correlated(keras_dp, table, tmp_path):
    summary = keras_dp.json(
        *("train", "--dataset", with_ids(table, tmp_path), "--target", "ill"),
        *("--user-column", "patient", "--mechanism", "bandmf", "--target-epsilon", 3),
        *("--epochs", 1, "--batch-size", 50, "--output-dir", tmp_path / "out"),
    )
    assert summary["unit"] == "person"
    assert 2.5 < summary["epsilon"] <= 3.0


def test_people_of_a_table_are_protected_in_one_command(keras_dp, table, tmp_path):
    path = with_ids(table, tmp_path)
    summary = keras_dp.json(
        *("train", "--dataset", path, "--target", "ill", "--user-column", "patient"),
        *("--target-epsilon", 3, "--epochs", 2, "--batch-size", 50),
        *("--output-dir", tmp_path / "out"),
    )
    assert summary["unit"] == "person" and summary["delta"] == 1e-3
    privacy = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert "one person with all" in " ".join(privacy["statement"].split())
    assert "a fifth of the values of patient" in privacy["data"]
    data = dp.data.load(str(path), target="ill", user_column="patient")
    # The id is no input, and nobody is in both parts.
    assert (
        data.x_train.shape[1] == dp.data.load(str(table), target="ill").x_train.shape[1]
    )
    assert len(data.user_ids) == len(data.x_train)
    assert len(data.x_test) % 3 == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--user-column", "absent"], "column of ids"),
        (["--user-column", "ill"], "not the target"),
        (["--user-column", "income"], "must have an id in each row"),
        (["--examples-per-user", "3"], "needs `--user-column`"),
    ],
)
def test_wrong_columns_of_ids_take_one_line(
    keras_dp, table, tmp_path, arguments, message
):
    status = keras_dp(
        *("train", "--dataset", table, "--target", "ill"),
        *("--output-dir", tmp_path / "out", *arguments),
    )
    assert status == 2 and message in keras_dp.stderr


def test_one_row_more_changes_no_other(table):
    before = dp.data.load(str(table), target="ill")
    with table.open("a") as file:
        file.write("1000000,Atlantis,-1e9,no\n")
    after = dp.data.load(str(table), target="ill")
    for part in ("train", "test"):
        for name in ("x", "y"):
            old = getattr(before, f"{name}_{part}")
            new = getattr(after, f"{name}_{part}")
            np.testing.assert_array_equal(old, new[: len(old)])
    assert len(after.x_train) + len(after.x_test) == 1501
    assert 0.15 < len(before.x_test) / 1500 < 0.25
    assert np.all(np.abs(after.x_train) < 30)


def test_missing_numbers_are_marked(table):
    data = dp.data.load(str(table), target="ill")
    income, missing = data.x_train[:, -2], data.x_train[:, -1]
    assert 0.05 < missing.mean() < 0.15 and np.all(income[missing == 1] == 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "must name the column to predict"),
        (["--target", "absent"], "age, city, income, ill"),
        (["--target", "income"], "must hold classes"),
    ],
)
def test_wrong_targets_take_one_line(keras_dp, table, tmp_path, arguments, message):
    status = keras_dp(
        *("train", "--dataset", table, "--output-dir", tmp_path / "out", *arguments)
    )
    assert status == 2 and message in keras_dp.stderr
    assert len(keras_dp.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("a,b\n1,2\n", "at least ten"),
        ("a,b\n" + "1,2\n" * 20 + "1\n", "values in each row"),
        ("a,a\n" + "1,2\n" * 20, "a name of its own"),
        ("a\n" + "1\n2\n" * 20, "beside `a`"),
    ],
)
def test_broken_tables(tmp_path, text, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        dp.data.load(str(path), target="a")
