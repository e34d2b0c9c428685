"""Attacks on the noise of several replicas: drawn twice, joined twice, replayed.

The same noise in two releases would cancel out in their difference. Noise that joins on
each replica is stronger than what is accounted for, noise that joins on none is absent.
"""

import functools
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from run_workers import run_workers

pytestmark = pytest.mark.replicas

HERE = pathlib.Path(__file__).parent


@functools.cache
def recorded(kind):
    """What each process recorded; run once for all tests."""
    unit, count = kind.split(" ")[1], int(kind.split(" ")[0])
    with tempfile.TemporaryDirectory() as folder:
        if unit == "workers":
            paths = [pathlib.Path(folder, f"{index}.npz") for index in range(count)]
            run_workers("noise_worker.py", paths, timeout=500)
        else:
            paths = [pathlib.Path(folder, "alone.npz")]
            subprocess.run(
                [sys.executable, HERE / "noise_worker.py", paths[0]],
                env={**os.environ, "REPLICAS": str(count)},
                check=True,
                timeout=500,
            )
        return [dict(np.load(path)) for path in paths]


WORKERS = ["2 workers", pytest.param("3 workers", marks=pytest.mark.slow)]
KINDS = [pytest.param("2 replicas", marks=pytest.mark.slow), "3 replicas", *WORKERS]


@pytest.mark.parametrize("noise", ["DPSGD", "DPSGD, secure"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_noise_comes_again_after_forks_restores_and_new_trainings(kind, noise):
    for releases in (process[noise] for process in recorded(kind)):
        assert len(releases) == 21
        similar = np.corrcoef(releases) - np.eye(len(releases))
        # Of 500 coordinates: a standard error is 0.045, and the same noise has 1.
        assert np.max(np.abs(similar)) < 0.3


@pytest.mark.parametrize("noise", ["DPSGD", "DPSGD, secure", "lots"])
@pytest.mark.parametrize("kind", KINDS)
def test_noise_joins_once_in_each_release(kind, noise):
    for releases in (process[noise] for process in recorded(kind)):
        # Twice would be 1.41; 0.16 is five standard errors.
        deviations = np.std(releases, axis=1)
        np.testing.assert_allclose(deviations, 1.0, atol=0.16)


@pytest.mark.parametrize("kind", WORKERS)
def test_all_workers_make_the_same_releases(kind):
    first, *others = recorded(kind)
    for other in others:
        for name, releases in first.items():
            np.testing.assert_array_equal(releases, other[name])


@pytest.mark.parametrize("kind", KINDS)
def test_correlated_noise_remembers_what_was_released(kind):
    """Neighbours within the bands cancel out in part, also after a fork."""
    (runs, *_) = (process["runs"] for process in recorded(kind))
    assert len(runs) == 9
    similar = np.corrcoef(runs)
    neighbours = np.diagonal(similar, 1)
    assert np.all(neighbours < -0.15), neighbours
