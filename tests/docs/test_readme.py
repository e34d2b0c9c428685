"""The README's lines run as they stand, and give the figures that stand beside them."""

import pathlib
import re

import numpy as np
import pytest

TEXT = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
TABLE, IMAGES, NUMBERS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_ten_lines_from_a_table_to_epsilon_3(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    age, city = rng.integers(18, 90, 3000), rng.choice(["Rome", "Oslo"], 3000)
    ill = age + 30 * (city == "Oslo") + rng.normal(0, 8, 3000) > 65
    rows = [f"{a},{c},{i}" for a, c, i in zip(age, city, ill, strict=True)]
    (tmp_path / "patients.csv").write_text("\n".join(["age,city,diagnosis", *rows]))
    lines = [line for line in TABLE.splitlines() if not line.startswith("import")]
    assert len([line for line in lines if line]) <= 10
    namespace = {}
    exec(TABLE, namespace)
    model, table = namespace["model"], namespace["table"]
    epsilon = model.history.history["epsilon"][-1]
    assert 2.9 < epsilon <= 3.0
    assert "differentially private" in (tmp_path / "report.html").read_text()
    assert model.evaluate(table.x_test, table.y_test, verbose=0)[1] > 0.75


def test_the_first_training():
    namespace = {}
    exec(IMAGES.replace("model.fit(", "history = model.fit(verbose=0, x="), namespace)
    epochs = namespace["history"].history
    shown = re.search(r"accuracy: ([\d.]+) - epsilon: ([\d.]+)", IMAGES)
    assert f"{epochs['epsilon'][-1]:.4f}" == shown[2]
    assert epochs["accuracy"][-1] == pytest.approx(float(shown[1]), abs=0.04)


def test_the_plain_numbers():
    lines = [line for line in NUMBERS.splitlines() if "#" in line]
    assert len(lines) == 2
    for line in lines:
        code, _, figure = line.partition("#")
        import keras_dp_ext as dp

        assert f"{eval(code.strip(), {'dp': dp}):.2f}" == figure.strip()


def test_what_is_named_exists():
    import keras_dp_ext as dp

    for name in set(re.findall(r"`dp\.([\w.]+)", TEXT)):
        value = dp
        for part in name.split("."):
            value = getattr(value, part)
