"""Every training script of the zoo is within its claim, or refused by name."""

import importlib
import warnings

import pytest

import keras_dp_ext as dp
from tests.zoo.kit import CASES

for _theme in (
    "accounts",
    "callbacks",
    "honest",
    "invented",
    "losses",
    "padding",
    "pipelines",
    "state",
    "steps",
):
    importlib.import_module(f"tests.zoo.{_theme}")


def _parameters():
    for case in CASES:
        marks = []
        if case.fails:
            marks.append(pytest.mark.xfail(strict=True, reason=case.fails))
        if case.slow:
            marks.append(pytest.mark.slow)
        yield pytest.param(case, id=f"{case.theme}-{case.name}", marks=marks)


def _audit(case):
    return dp.audit.audit_fit(
        case.train, case.data(), examples=case.examples, adjacency=case.adjacency
    )


@pytest.mark.parametrize("case", _parameters())
def test_script(case, capsys):
    if case.expects == "within":
        audit = _audit(case)
        assert audit.within_claim, f"{case.wrong}\n{audit}"
        # The example was really there.
        assert audit.shift > 0, str(audit)
    elif case.expects == "refused":
        with pytest.raises((ValueError, NotImplementedError), match=case.match):
            case.train(*case.data())
    elif case.expects == "warned":
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = case.train(*case.data())
        told = [str(warning.message) for warning in caught]
        told.append(capsys.readouterr().out)
        assert model is not None
        assert any(case.match in text for text in told), f"{case.wrong}\n{told}"
    else:
        assert case.expects == "found"
        audit = _audit(case)
        assert not audit.within_claim, str(audit)
        assert case.match in str(audit), str(audit)


def test_the_zoo_is_large_and_its_scripts_have_names_of_their_own():
    assert len({case.name for case in CASES}) == len(CASES) >= 40
