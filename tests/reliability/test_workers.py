"""Two workers share every lot: no example is twice in one update, and `fit` works.

Drawn by each worker for itself, as it once was, lots with a `seed` held every example
twice, and lots without one some of them.
"""

import collections
import functools
import json
import pathlib
import tempfile

import numpy as np
import pytest
from reliability_models import data, dense_model
from run_workers import run_workers

import keras_dp_ext as dp

ROWS = np.arange(1, 201, dtype=np.int32)
IDS = np.arange(200) // 4

LOTS = {
    "poisson": lambda: dp.data.poisson_batches(ROWS, batch_size=40),
    "poisson, seed": lambda: dp.data.poisson_batches(ROWS, batch_size=40, seed=3),
    "shuffled": lambda: dp.data.shuffled_batches(ROWS, batch_size=40),
    "cyclic": lambda: dp.data.cyclic_poisson_batches(ROWS, batch_size=20, cycle=4),
    "fixed order": lambda: dp.data.fixed_order_batches(ROWS, batch_size=40),
    "people": lambda: dp.data.poisson_batches(
        ROWS, batch_size=10, user_ids=IDS, examples_per_user=2
    ),
}


def fit_lots(**arguments):
    return dp.data.poisson_batches(*data(64), batch_size=16, seed=9, **arguments)


@functools.cache
def two_workers():
    """What both workers found; they run once for all tests."""
    with tempfile.TemporaryDirectory() as folder:
        results = [pathlib.Path(folder, f"{index}.json") for index in range(2)]
        run_workers("fit_worker.py", results, timeout=900)
        return [json.loads(result.read_text()) for result in results]


@pytest.mark.parametrize("name", LOTS)
def test_no_example_is_in_the_rows_of_two_workers(name):
    first, second = (worker["rows"][name] for worker in two_workers())
    assert len(first) == len(second) == 2
    for epoch in zip(first, second, strict=True):
        assert len(epoch[0]) == len(epoch[1]) == len(LOTS[name]())
        for mine, theirs in zip(*epoch, strict=True):
            assert not set(mine) & set(theirs)
            assert max(collections.Counter(mine + theirs).values(), default=1) == 1
    if "fixed" not in name:
        assert first[0] != first[1]


def test_two_workers_draw_the_lots_of_one():
    lots = LOTS["poisson, seed"]()
    first, second = (worker["rows"]["poisson, seed"] for worker in two_workers())
    for mine, theirs in zip(first, second, strict=True):
        alone = [[int(r) for r in x[weight > 0]] for x, _, weight in lots]
        assert [m + t for m, t in zip(mine, theirs, strict=True)] == alone


def test_lots_without_a_seed_are_not_those_of_another_training():
    first, _ = two_workers()
    assert first["rows"]["poisson"] != first["rows"]["poisson, seed"]


@pytest.mark.parametrize(
    ("attack", "message"),
    {
        "other order": "different examples",
        "other seed": "a different `seed`",
        "other rate": "draw different lots",
        "arrays": "agreed on",
        "shuffled": "agreed on",
        "stated": "agreed on",
        "train_on_batch": "agreed on",
        "without sharding": "auto_shard_policy",
        "other weights": "other weights",
        "other ledger": "other ledger",
        "compiled by XLA": "cannot compile",
    }.items(),
)
def test_what_could_hold_an_example_twice_is_refused(attack, message):
    for worker in two_workers():
        assert message in worker["errors"][attack]


def test_a_worker_that_draws_once_more_is_refused():
    errors = [worker["errors"]["one looks before"] for worker in two_workers()]
    assert any("equally often" in error for error in errors), errors
    assert "not refused" not in errors


@pytest.mark.parametrize("steps", [1, 2])
def test_fit_on_two_workers_releases_what_one_device_releases(steps):
    name = "trained" if steps == 1 else "trained in lots"
    first, second = (worker[name] for worker in two_workers())
    assert first["weights"] == second["weights"]
    model = dense_model()
    model.compile(
        dp.optimizers.DPSGD(
            learning_rate=0.1, noise_seed=5, gradient_accumulation_steps=steps
        ),
        "mse",
        jit_compile=False,
    )
    lots = fit_lots(accumulation_steps=steps)
    next(iter(lots))  # `fit` under a strategy looks at a first batch for its shapes.
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-5)
    alone = model.fit(lots, epochs=2, verbose=0, callbacks=[accountant]).history
    expected = np.concatenate([np.ravel(value) for value in model.get_weights()])
    np.testing.assert_allclose(first["weights"], expected, atol=1e-6)
    assert first["releases"] == second["releases"] == 8
    assert first["epsilon"] == second["epsilon"] == alone["epsilon"]
    np.testing.assert_allclose(first["loss"], second["loss"])


def test_workers_go_on_from_the_backup_of_the_first_one():
    first, second = (worker["resumed"] for worker in two_workers())
    assert first["weights"] == second["weights"]
    assert first["epochs and releases"] == second["epochs and releases"]
    assert first["epochs and releases"] == [[0, 0], [1, 4], [2, 8], [2, 8]]
    assert first["epsilon"] == second["epsilon"]
    assert first["left"] == second["left"] == []


def test_plain_optimizers_fit_too_once_a_private_one_was_made():
    first, second = (worker["plain"] for worker in two_workers())
    assert first == second
    assert first[1] < first[0]
