"""Balls in bins: everybody in one random lot of each pass, through `fit`."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
from scipy import stats

import keras_dp_ext as dp
from keras_dp_ext.accounting import BallsInBins, Claim, GaussianRelease, epsilon_rdp
from keras_dp_ext.data import balls_in_bins_batches
from keras_dp_ext.data.sampling.balls_in_bins_batches import draw_bins
from tests.numpy_batches import numpy_batches

X = np.arange(60, dtype=np.int32)


def compiled(optimizer, **arguments):
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile(optimizer, loss="mse", **arguments)
    return model


def lots_of(num_rows=60, **arguments):
    x = np.random.default_rng(0).normal(size=[num_rows, 2]).astype(np.float32)
    arguments = {"batch_size": 10, **arguments}
    return balls_in_bins_batches(x, x[:, :1], **arguments)


def test_everybody_is_once_in_each_pass_and_passes_differ():
    lots = balls_in_bins_batches(X, X, 10)
    passes = []
    for _ in range(2):
        rows = [x[weight > 0].tolist() for x, _, weight in numpy_batches(lots)]
        assert sorted(x for lot in rows for x in lot) == X.tolist()
        passes.append(rows)
    assert passes[0] != passes[1]
    assert len(lots) == 6
    assert len({len(rows) for rows in passes[0]}) > 1  # Not a shuffle.


def test_choices_are_uniform_and_independent():
    random = np.random.default_rng(1)
    places = []
    for _ in range(3000):
        lots = draw_bins(random, 4, 5, capacity=5)
        places.append([int(np.argwhere(lots == row)[0, 0]) for row in range(5)])
    places = np.array(places)
    for row in range(5):
        assert stats.chisquare(np.bincount(places[:, row], minlength=4)).pvalue > 1e-4
    pairs = np.bincount(4 * places[:, 0] + places[:, 1], minlength=16)
    assert stats.chisquare(pairs).pvalue > 1e-4


def test_slots_are_uniform_and_a_full_lot_loses_random_examples():
    random = np.random.default_rng(2)
    slots, lost = np.zeros(2), np.zeros(4)
    for _ in range(3000):
        lots = draw_bins(random, 2, 4, capacity=2)
        kept = set(lots.ravel().tolist()) - {4}
        lost += [row not in kept for row in range(4)]
        slots += (lots != 4).sum(axis=0)
    assert stats.chisquare(slots).pvalue > 1e-4
    assert lost.min() > 300 and stats.chisquare(lost).pvalue > 1e-4


def test_public_numbers_hide_how_many_there_are():
    def seen(num_rows):
        lots = balls_in_bins_batches(
            np.zeros([num_rows, 2]), batch_size=20, steps_per_epoch=10
        )
        label = lots.dp_sampling
        return label, lots.element_spec, len(lots)

    assert seen(150) == seen(151)
    assert seen(150)[0].num_examples == 200
    assert seen(150)[0].sampling.adjacency == "add or remove one example"
    with pytest.raises(ValueError, match="there are more") as error:
        seen(203)
    assert "203" not in str(error.value)


def test_where_steps_follow_from_the_size_adjacency_is_zero_out():
    sampling = balls_in_bins_batches(X, X, 10).dp_sampling.sampling
    assert sampling.adjacency == (
        "zero-out: replace one example by one that contributes nothing (the number of "
        "examples, from which steps of a pass follow, is public)"
    )


@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_pays_for_passes_and_says_how_lots_were_drawn(jit_compile, capsys):
    lots = lots_of()
    model = compiled(dp.optimizers.DPSGD(noise_multiplier=1.5), jit_compile=jit_compile)
    accountant = dp.PrivacyAccountant(delta=1e-3)
    model.fit(lots, epochs=3, verbose=0, callbacks=[accountant])
    release = GaussianRelease(1.5), lots.dp_sampling.sampling, 18
    assert model.optimizer.ledger.epsilon(delta=1e-3) == epsilon_rdp([release], 1e-3)
    assert isinstance(release[1], BallsInBins)
    statement = accountant.statement()
    assert "balls in bins, each example in one of 6 releases" in statement
    assert "zero-out" in statement


def test_a_fit_that_stops_within_a_pass_pays_for_all_of_it():
    lots = lots_of()
    model = compiled(dp.optimizers.DPSGD(noise_multiplier=1.5))
    model.fit(lots, epochs=1, steps_per_epoch=2, verbose=0)
    model.fit(lots, epochs=1, verbose=0)
    passes = GaussianRelease(1.5), lots.dp_sampling.sampling, 12
    assert model.optimizer.ledger.epsilon(delta=1e-3) == epsilon_rdp([passes], 1e-3)


def test_a_reloaded_model_goes_on(tmp_path):
    lots = lots_of()
    model = compiled(dp.optimizers.DPSGD(noise_multiplier=1.5))
    model.fit(lots, epochs=1, verbose=0)
    model.save(tmp_path / "model.keras")
    model = keras.saving.load_model(tmp_path / "model.keras")
    model.fit(lots, epochs=1, verbose=0)
    passes = GaussianRelease(1.5), lots.dp_sampling.sampling, 12
    assert model.optimizer.ledger.epsilon(delta=1e-3) == epsilon_rdp([passes], 1e-3)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: dp.optimizers.make_private(
            keras.optimizers.SGD,
            bound=dp.bounding.L1Clip(1.0),
            noise=dp.noise.Laplace(2.0),
        ),
        lambda: dp.optimizers.BandMFSGD(bands=4),
        lambda: dp.optimizers.DPFTRLSGD(),
    ],
    ids=["laplace", "bandmf", "dpftrl"],
)
def test_what_the_proof_does_not_cover_is_refused_before_the_first_step(optimizer):
    model = compiled(optimizer())
    before = model.get_weights()
    with pytest.raises(ValueError, match="proven"):
        model.fit(lots_of(), verbose=0, callbacks=[dp.PrivacyAccountant(delta=1e-3)])
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("change", ["take", "skip", "cache"])
def test_what_cuts_a_pass_loses_the_label(change):
    lots = lots_of()
    cut = {
        "take": lambda: lots.take(3),
        "skip": lambda: lots.skip(1),
        "cache": lambda: lots.cache(),
    }[change]()
    assert dp.data.sampling_of(cut) is None


def test_lots_in_parts_hold_whole_passes():
    lots = lots_of(accumulation_steps=2)
    model = compiled(
        dp.optimizers.DPSGD(noise_multiplier=1.5, gradient_accumulation_steps=2)
    )
    model.fit(lots, epochs=2, verbose=0)
    assert int(model.optimizer.releases.numpy()) == 12
    passes = GaussianRelease(1.5), lots.dp_sampling.sampling, 12
    assert model.optimizer.ledger.epsilon(delta=1e-3) == epsilon_rdp([passes], 1e-3)


def test_people_choose_one_lot_with_their_rows():
    ids = np.arange(60) // 3
    lots = balls_in_bins_batches(X, ids, 5, user_ids=ids, examples_per_user=2)
    seen = []
    for _, owners, weight in numpy_batches(lots):
        in_lot = set(owners[weight > 0].tolist())
        assert np.all(np.bincount(owners[weight > 0], minlength=20) <= 2)
        seen += in_lot
    assert sorted(seen) == list(range(20))
    assert lots.dp_sampling.sampling.describe().startswith("balls in bins, each person")


@pytest.mark.parametrize("claimed", [1.5, 3.0])
def test_an_audit_of_fit_believes_what_is_true_only(claimed, monkeypatch):
    """The example joins one lot of each pass."""
    monkeypatch.setattr(
        dp.optimizers.DPSGD,
        "privacy_claim",
        lambda self: Claim(GaussianRelease(claimed)),
    )

    def train(x, y):
        lots = balls_in_bins_batches(x, y, 10, steps_per_epoch=7)
        model = compiled(dp.optimizers.DPSGD(noise_multiplier=1.5))
        model.fit(lots, epochs=2, verbose=0)
        return model

    x = np.random.default_rng(0).normal(size=[60, 2]).astype(np.float32)
    result = dp.audit.audit_fit(train, (x, x[:, :1]), examples=["huge"])
    assert result.participations == 2
    assert (result.reasons == ()) is (claimed == 1.5), result


def test_a_budget_is_kept():
    optimizer = dp.optimizers.DPSGD.for_budget(
        epsilon=2.0, num_examples=60, batch_size=10, epochs=3, sampling="balls-in-bins",
        delta=1e-3,
    )  # fmt: skip
    model = compiled(optimizer)
    model.fit(lots_of(), epochs=3, verbose=0)
    assert 1.9 < model.optimizer.ledger.epsilon(delta=1e-3) <= 2.0


def test_the_command_line_knows_it():
    command = [
        *(sys.executable, "-m", "keras_dp_ext.cli", "epsilon", "--mechanism", "dpsgd"),
        *(
            "--noise-multiplier",
            "1.1",
            "--num-examples",
            "60000",
            "--batch-size",
            "256",
        ),
        *("--epochs", "10", "--sampling", "balls-in-bins", "--delta", "1e-5", "--json"),
    ]
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert told["epsilon"] == pytest.approx(
        epsilon_rdp([(GaussianRelease(1.1), BallsInBins(234), 2340)], 1e-5)
    )
    assert told["adjacency"].startswith("zero-out")
    refused = subprocess.run(
        [word.replace("dpsgd", "dpftrl") for word in command], capture_output=True
    )
    assert refused.returncode and b"not proven" in refused.stderr
