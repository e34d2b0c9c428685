"""Models that nobody here wrote train as a loop over their examples does."""

import dataclasses
import importlib.util
import json
import pathlib

import keras
import pytest

from benchmarks.third_party import architectures, unseen_patterns
from benchmarks.third_party.catalogue import CASES
from benchmarks.third_party.measure import (
    TOLERANCE,
    check,
    check_double,
    is_rounding,
    truth_of,
)
from benchmarks.third_party.page import is_right, page

RESULTS = pathlib.Path(__file__).parents[2] / "docs" / "results" / "models.json"
MEASURED = json.loads(RESULTS.read_text())
# Those of the page, and those that were tried when the rules were done.
UNMEASURED = [*unseen_patterns.CASES, *architectures.CASES]
LISTED = dict.fromkeys([*MEASURED, *(case.name for case in UNMEASURED)])

# One of each kind of layer, loss and input.
QUICK = [
    "text classification, Conv1D",
    "named entities, masked GRU",
    "wide and deep table",
    "TabTransformer",
    "collaborative filtering",
    "vision transformer",
    "Perceiver",
    "super-resolution, any size",
    "switch transformer",
    "graph attention, a graph to an example",
    "speech recognition, CTC",
    "knowledge distillation, `compute_loss`",
]
MIXING = {
    "SimCLR": "mix",
    "BatchNormalization that trains": "GroupNormalization",
    "audio, mel spectrogram": "mix",
    "CLIPBackbone, contrastive": "mix",
    "XLNetBackbone": "mix",  # It reshapes its mask where it should transpose it.
}
BY_FALLBACK = {"Mamba, `ops.scan`"}


def check_case(name):
    case = CASES[name]
    if case.source == "KerasHub" and importlib.util.find_spec("keras_hub") is None:
        pytest.skip("keras-hub is not installed: pip install keras-dp-ext[hub]")
    if name in MIXING:
        with pytest.raises(ValueError, match=MIXING[name]):
            check(case)
        return
    error, way = check(case)
    assert error <= TOLERANCE
    assert way == "rule" or name in BY_FALLBACK


@pytest.mark.parametrize("name", QUICK)
def test_a_dozen_models_train_as_a_loop_over_examples(name):
    check_case(name)


@pytest.mark.parametrize("name", ["SimCLR", "BatchNormalization that trains"])
def test_models_that_mix_are_refused_with_a_reason(name):
    check_case(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LISTED if name not in QUICK])
def test_every_model_of_the_page_trains_as_a_loop_over_examples(name):
    check_case(name)


def test_the_page_is_made_from_the_measurements():
    assert len(MEASURED) >= 80
    assert page(MEASURED) == (RESULTS.parents[1] / "models.md").read_text()
    refused = {name for name, row in MEASURED.items() if row["verdict"] != "trains"}
    assert refused <= set(MIXING)
    assert all(is_right(row) for n, row in MEASURED.items() if n not in refused)


def test_the_judge_computes_in_float64():
    """Also in a process where layers have been made in float32."""
    keras.layers.Dense(1)
    seen = []

    def build():
        training = CASES["NeRF's network"].build()
        seen.append({weight.dtype for weight in training.model.weights})
        return training

    case = dataclasses.replace(CASES["NeRF's network"], build=build)
    found = check_double(case, truth_of(case))
    assert seen[-2:] == [{"float64"}] * 2  # That of the loop, and that of the step.
    assert found["error"] < 1e-6 and 0 < found["rounding"] < 1e-4
    assert keras.layers.Dense(1).dtype_policy.name == keras.config.floatx() == "float32"


def test_float64_decides_only_where_plain_keras_is_as_far_off():
    """A wrong rule is wrong in float64, and a right one no worse than a loop in float32."""
    assert is_rounding(1e-2, {"error": 1e-7, "rounding": 1e-2})
    assert not is_rounding(1e-2, {"error": 1e-3, "rounding": 1e-2})
    assert not is_rounding(1e-2, {"error": 1e-7, "rounding": 1e-6})
    assert not is_rounding(1e-2, {"failure": "No answer."})
