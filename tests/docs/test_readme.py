"""The README's lines run as they stand, and give the figures that stand beside them."""

import pathlib
import re

import pytest

TEXT = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_first_training():
    namespace = {}
    exec(
        BLOCKS[0].replace("model.fit(", "history = model.fit(verbose=0, x="), namespace
    )
    epochs = namespace["history"].history
    shown = re.search(r"accuracy: ([\d.]+) - epsilon: ([\d.]+)", BLOCKS[0])
    assert f"{epochs['epsilon'][-1]:.4f}" == shown[2]
    assert epochs["accuracy"][-1] == pytest.approx(float(shown[1]), abs=0.04)


def test_the_plain_numbers():
    lines = [line for line in BLOCKS[1].splitlines() if "#" in line]
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
