"""The accountant callback: what it shows, when it stops, what it refuses."""

import csv
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from keras_dp_ext import accounting
from keras_dp_ext.accounting import composition
from keras_dp_ext.callbacks import PrivacyAccountant

SIGMA, DELTA = 2.0, 1e-4
SIZE, BATCH = 120, 12
POISSON = accounting.Poisson(BATCH / SIZE)


@pytest.fixture
def data():
    random = np.random.default_rng(0)
    x = random.standard_normal([SIZE, 3]).astype("float32")
    return x, x[:, :1]


def compiled(optimizer=None, **arguments):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    optimizer = optimizer or dp.optimizers.DPSGD(
        learning_rate=0.1, noise_multiplier=SIGMA
    )
    model.compile(optimizer, loss="mse", **arguments)
    return model


def poisson(data, **arguments):
    return dp.data.poisson_batches(*data, batch_size=BATCH, **arguments)


def spent(releases, sampling=POISSON, sigma=SIGMA, delta=DELTA, accountant="rdp"):
    entry = accounting.GaussianRelease(sigma), sampling, releases
    return accounting.epsilon([entry], delta, accountant)


def fit(model, x, *callbacks, epochs=1, verbose=0, **arguments):
    y = arguments.pop("y", None)
    return model.fit(
        x, y, epochs=epochs, verbose=verbose, callbacks=list(callbacks), **arguments
    )


# What it shows -------------------------------------------------------------------


def test_epsilon_of_every_epoch_is_the_accountants(data):
    history = fit(compiled(), poisson(data), PrivacyAccountant(delta=DELTA), epochs=3)
    expected = [spent(releases) for releases in (10, 20, 30)]
    assert history.history["epsilon"] == pytest.approx(expected, rel=1e-6)
    assert "published_epsilon" not in history.history


def test_pld_is_tighter(data):
    accountant = PrivacyAccountant(delta=DELTA, accountant="pld")
    fit(compiled(), poisson(data), accountant, epochs=1)
    assert accountant.epsilon == pytest.approx(spent(10, accountant="pld"), rel=1e-3)
    assert accountant.epsilon < spent(10)


@pytest.mark.parametrize("position", [0, 2])
def test_other_callbacks_see_epsilon_whatever_the_order(data, tmp_path, position):
    # Epsilon never falls, so with mode "min" nothing improves on the first epoch.
    stopping = keras.callbacks.EarlyStopping(monitor="epsilon", mode="min", patience=1)
    others = [
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.ModelCheckpoint(
            str(tmp_path / "best-{epsilon:.3f}.weights.h5"),
            monitor="epsilon",
            mode="min",
            save_best_only=True,
            save_weights_only=True,
        ),
        stopping,
    ]
    others.insert(position, PrivacyAccountant(delta=DELTA))
    history = fit(compiled(), poisson(data), *others, epochs=3)
    with open(tmp_path / "log.csv") as log:
        rows = list(csv.DictReader(log))
    logged = [float(row["epsilon"]) for row in rows]
    assert logged == history.history["epsilon"]
    assert (tmp_path / f"best-{logged[0]:.3f}.weights.h5").exists()
    assert stopping.best == logged[0]
    assert stopping.stopped_epoch == len(logged) - 1 == 1


def test_tensorboard_shows_epsilon(data, tmp_path):
    pytest.importorskip("tensorboard")
    board = keras.callbacks.TensorBoard(tmp_path)
    fit(compiled(), poisson(data), board, PrivacyAccountant(delta=DELTA))
    assert any(b"epsilon" in p.read_bytes() for p in tmp_path.rglob("*tfevents*"))


def test_the_progress_bar_shows_the_figure_of_the_whole_epoch(data, capsys):
    fit(compiled(), poisson(data), PrivacyAccountant(delta=DELTA), epochs=2, verbose=2)
    out = capsys.readouterr().out
    assert f"epsilon: {spent(10):.4f}" in out
    assert f"epsilon: {spent(20):.4f}" in out


def test_the_statement_says_what_is_and_is_not_covered(data, capsys):
    accountant = PrivacyAccountant(delta=DELTA)
    fit(compiled(), data[0], accountant, y=data[1], batch_size=BATCH, verbose=2)
    text = " ".join(capsys.readouterr().out.split())
    shown = float(re.search(r"\(([\d.]+), 0\.0001\)-differentially private", text)[1])
    assert accountant.epsilon <= shown <= accountant.epsilon * 1.001
    assert "proven" in text and "Adjacency: zero-out" in text
    assert "shuffled" in text and "no amplification" in text
    assert f"epsilon would be {spent(10):.4g}" in text
    assert "hyper-parameters" in text and "metrics" in text
    assert " ".join(accountant.best_attack.describe().split()) in text
    silent = PrivacyAccountant(delta=DELTA)
    fit(compiled(), poisson(data), silent)
    assert capsys.readouterr().out == ""
    assert "Poisson" in silent.statement()


def test_the_best_attack_is_that_on_all_releases(data):
    accountant = PrivacyAccountant(delta=DELTA)
    # One participation in each of two epochs: one Gaussian release.
    fit(compiled(), data[0], accountant, y=data[1], batch_size=BATCH, epochs=2)
    mu = np.sqrt(2) / SIGMA
    assert accountant.best_attack.gdp_mu == pytest.approx(mu, rel=0.01)
    assert accountant.best_attack.computed_from == "pld"


def test_published_figures_come_with_a_warning(data):
    model = compiled(
        dp.optimizers.TanhSGD(noise_multiplier=SIGMA, guarantee="published")
    )
    with pytest.warns(UserWarning, match="no meaningful guarantee"):
        history = fit(model, poisson(data), PrivacyAccountant(delta=DELTA))
    # By the conversion that the paper cites, not by ours.
    printed = composition.moments_accountant(SIGMA, BATCH / SIZE, 10, DELTA)
    assert printed > 1.1 * spent(10)
    assert history.history["published_epsilon"][0] == pytest.approx(printed, rel=1e-6)
    # Four parameters, c = 1: a sensitivity of 2.
    expected = spent(10, sigma=SIGMA / 2)
    assert history.history["epsilon"][0] == pytest.approx(expected, rel=1e-6)


def test_delta_defaults_to_a_power_of_ten_below_one_over_n(data):
    accountant = PrivacyAccountant()
    fit(compiled(), poisson(data), accountant)
    assert accountant.epsilon == pytest.approx(spent(10, delta=1e-3), rel=1e-6)


# What it counts ------------------------------------------------------------------


def test_arrays_are_shuffled_and_not_amplified(data):
    accountant = PrivacyAccountant(delta=DELTA)
    fit(compiled(), data[0], accountant, y=data[1], batch_size=BATCH, epochs=2)
    assert accountant.epsilon == pytest.approx(spent(2, accounting.FullBatch()))


def test_fit_calls_and_changed_noise_compose(data):
    model, accountant = compiled(), PrivacyAccountant(delta=DELTA)
    fit(model, poisson(data), accountant)
    fit(model, poisson(data), accountant)
    assert accountant.epsilon == pytest.approx(spent(20), rel=1e-6)
    noisier = dp.optimizers.DPSGD(noise_multiplier=4.0)
    noisier.continue_from(model.optimizer)
    model.compile(noisier, loss="mse")
    fit(model, poisson(data), accountant)
    entries = [
        (accounting.GaussianRelease(sigma), POISSON, count)
        for sigma, count in ((SIGMA, 20), (4.0, 10))
    ]
    assert accountant.epsilon == pytest.approx(
        accounting.epsilon(entries, DELTA), rel=1e-6
    )


def test_two_unfinished_epochs_of_shuffled_data_count_as_two(data):
    class StopAfter(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 4

    model, accountant = compiled(), PrivacyAccountant(delta=DELTA)
    for _ in range(2):
        fit(model, data[0], accountant, StopAfter(), y=data[1], batch_size=BATCH)
    assert accountant.releases == 10
    assert accountant.epsilon == pytest.approx(spent(2, accounting.FullBatch()))


@pytest.mark.parametrize(
    "cut, participations",
    [
        (lambda lots: lots.take(4), 3),  # Three epochs of four lots, each a new pass.
        (lambda lots: lots.skip(8), 3),
        (lambda lots: lots.repeat(), 4),
        (lambda lots: lots.repeat(2).take(16), 6),  # A pass and half a pass an epoch.
    ],
)
def test_passes_that_are_cut_short_count_as_passes(data, cut, participations):
    lots = cut(dp.data.shuffled_batches(*data, batch_size=BATCH))
    steps = 16 if lots.cardinality().numpy() < 0 else None
    # Where a pass is cut, the pipeline no longer says what it has.
    optimizer = dp.optimizers.DPSGD(noise_multiplier=SIGMA, expected_batch_size=BATCH)
    accountant = PrivacyAccountant(num_examples=SIZE, batch_size=BATCH, delta=DELTA)
    fit(compiled(optimizer), lots, accountant, epochs=3, steps_per_epoch=steps)
    least = spent(participations, accounting.FullBatch())
    most = spent(accountant.releases, accounting.FullBatch())
    assert least * (1 - 1e-9) <= accountant.epsilon <= most * (1 + 1e-9)


def test_a_pipeline_of_ones_own_may_repeat_within_an_epoch(data):
    import tensorflow as tf

    pipeline = tf.data.Dataset.from_tensor_slices(data).shuffle(SIZE)
    pipeline = pipeline.batch(BATCH).repeat(2).take(15)
    optimizer = dp.optimizers.DPSGD(noise_multiplier=SIGMA, expected_batch_size=BATCH)
    accountant = PrivacyAccountant(num_examples=SIZE, batch_size=BATCH, delta=DELTA)
    fit(compiled(optimizer), pipeline, accountant, epochs=2)
    # Ten batches and five in each epoch: two participations, four in all.
    least = spent(4, accounting.FullBatch())
    most = spent(accountant.releases, accounting.FullBatch())
    assert accountant.releases == 30
    assert least * (1 - 1e-9) <= accountant.epsilon <= most * (1 + 1e-9)


def test_a_lot_that_was_interrupted_is_not_mixed_with_the_next(data):
    class Seen(keras.callbacks.Callback):
        releases = ()

        def on_train_batch_end(self, batch, logs=None):
            self.releases += (int(self.model.optimizer.releases.numpy()),)
            if len(self.releases) == 3 and self.interrupt:
                raise KeyboardInterrupt

    optimizer = dp.optimizers.DPSGD(
        noise_multiplier=SIGMA, gradient_accumulation_steps=2
    )
    model, accountant = compiled(optimizer), PrivacyAccountant(delta=DELTA)
    first, second = Seen(), Seen()
    first.interrupt, second.interrupt = True, False
    lots = poisson(data, accumulation_steps=2)
    with pytest.raises(KeyboardInterrupt):
        fit(model, lots, accountant, first)
    assert first.releases == (0, 1, 1)
    fit(model, lots, accountant, second)
    assert second.releases[:4] == (1, 2, 2, 3)


def test_releases_without_an_accountant_are_not_forgotten(data):
    model, accountant = compiled(), PrivacyAccountant(delta=DELTA)
    fit(model, poisson(data), accountant)
    fit(model, data[0], y=data[1], batch_size=BATCH)  # Seen: one pass.
    model.train_on_batch(data[0][:BATCH], data[1][:BATCH])  # Anybody's batch.
    fit(model, poisson(data), accountant)
    entries = [
        (accounting.GaussianRelease(SIGMA), POISSON, 20),
        (accounting.GaussianRelease(SIGMA), accounting.FullBatch(), 2),
    ]
    assert accountant.epsilon == pytest.approx(
        accounting.epsilon(entries, DELTA), rel=1e-6
    )


def test_lots_are_counted_not_batches(data):
    optimizer = dp.optimizers.DPSGD(
        noise_multiplier=SIGMA, gradient_accumulation_steps=2
    )
    model, accountant = compiled(optimizer), PrivacyAccountant(delta=DELTA)
    fit(model, poisson(data, accumulation_steps=2), accountant)
    assert accountant.releases == 10
    assert accountant.epsilon == pytest.approx(spent(10), rel=1e-6)
    arrays = compiled(
        dp.optimizers.DPSGD(noise_multiplier=SIGMA, gradient_accumulation_steps=5)
    )
    accountant = PrivacyAccountant(delta=DELTA)
    fit(arrays, data[0], accountant, y=data[1], batch_size=BATCH, epochs=2)
    assert accountant.releases == 4
    assert accountant.epsilon == pytest.approx(spent(2, accounting.FullBatch()))


def test_a_model_that_was_saved_remembers_what_it_spent(data, tmp_path):
    model = compiled()
    fit(model, poisson(data), PrivacyAccountant(delta=DELTA))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    accountant = PrivacyAccountant(delta=DELTA)
    fit(loaded, poisson(data), accountant)
    assert accountant.epsilon == pytest.approx(spent(20), rel=1e-6)


# When it stops -------------------------------------------------------------------


@pytest.mark.parametrize("per_execution", [1, 4])
def test_training_stops_before_the_release_that_would_exceed(data, per_execution):
    target = spent(17) * (1 + 1e-6)
    model = compiled(steps_per_execution=per_execution)
    accountant = PrivacyAccountant(delta=DELTA, target_epsilon=target)
    fit(model, poisson(data), accountant, epochs=9)
    # In the middle of the second epoch; Keras looks only between executions,
    # and the last execution of an epoch of ten has two steps.
    assert accountant.releases == {1: 17, 4: 14}[per_execution]
    assert accountant.epsilon <= target


def test_lots_are_stopped_in_time(data):
    target = spent(3) * (1 + 1e-6)
    optimizer = dp.optimizers.DPSGD(
        noise_multiplier=SIGMA, gradient_accumulation_steps=2
    )
    accountant = PrivacyAccountant(delta=DELTA, target_epsilon=target)
    fit(compiled(optimizer), poisson(data, accumulation_steps=2), accountant, epochs=9)
    assert accountant.releases == 3


def test_shuffled_epochs_are_used_up(data):
    # A second participation of anybody would exceed the target.
    target = spent(1, accounting.FullBatch()) * 1.01
    accountant = PrivacyAccountant(delta=DELTA, target_epsilon=target)
    fit(compiled(), data[0], accountant, y=data[1], batch_size=BATCH, epochs=9)
    assert accountant.releases == 10


def test_a_spent_budget_allows_no_further_step(data):
    model = compiled()
    accountant = PrivacyAccountant(delta=DELTA, target_epsilon=spent(5) * (1 + 1e-6))
    fit(model, poisson(data), accountant)
    before = [weight.copy() for weight in model.get_weights()]
    with pytest.raises(ValueError, match="5 releases have spent"):
        fit(model, poisson(data), accountant)
    np.testing.assert_array_equal(before[0], model.get_weights()[0])


def test_more_steps_than_the_pipeline_has_are_no_reason_to_stop(data):
    accountant = PrivacyAccountant(delta=DELTA, target_epsilon=1e3)
    fit(compiled(), poisson(data).repeat(), accountant, steps_per_epoch=35)
    assert accountant.releases == 35


def test_a_generous_target_changes_nothing(data):
    accountant = PrivacyAccountant(delta=DELTA, target_epsilon=1e3)
    history = fit(compiled(), poisson(data), accountant, epochs=2)
    assert len(history.epoch) == 2 and accountant.releases == 20


# What it refuses -----------------------------------------------------------------


def test_an_optimizer_without_privacy_is_an_error_not_epsilon_zero(data):
    with pytest.raises(ValueError, match="no privacy at all"):
        fit(compiled(keras.optimizers.SGD()), poisson(data), PrivacyAccountant())


def test_arguments_that_contradict_the_data_are_refused(data):
    with pytest.raises(ValueError, match="num_examples"):
        fit(compiled(), poisson(data), PrivacyAccountant(num_examples=10**6))


def test_a_stated_sampling_must_not_contradict_the_data(data):
    stated = PrivacyAccountant(delta=DELTA, sampling=POISSON)
    with pytest.raises(ValueError, match="sampling"):
        fit(compiled(), data[0], stated, y=data[1], batch_size=BATCH)
    cautious = PrivacyAccountant(delta=DELTA, sampling=accounting.FullBatch())
    fit(compiled(), data[0], cautious, y=data[1], batch_size=BATCH)
    assert cautious.epsilon == pytest.approx(spent(10, accounting.FullBatch()))


def test_figures_before_there_is_a_delta_are_an_error():
    accountant = PrivacyAccountant()
    accountant.set_model(compiled())
    with pytest.raises(ValueError, match="delta"):
        _ = accountant.epsilon


def test_lots_that_are_not_what_was_sampled_are_refused(data):
    def accumulating():
        return compiled(
            dp.optimizers.DPSGD(noise_multiplier=SIGMA, gradient_accumulation_steps=4)
        )

    with pytest.raises(ValueError, match="accumulat"):
        fit(accumulating(), poisson(data), PrivacyAccountant(delta=DELTA))
    # Ten batches make two and a half lots: one would span two epochs.
    with pytest.raises(ValueError, match="divide"):
        fit(
            accumulating(),
            data[0],
            PrivacyAccountant(delta=DELTA),
            y=data[1],
            batch_size=BATCH,
        )


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_examples": 0},
        {"batch_size": 1.5},
        {"delta": -1.0},
        {"target_epsilon": 0.0},
        {"accountant": "moments"},
        {"sampling": "poisson"},
    ],
)
def test_nonsense_is_refused(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        PrivacyAccountant(**arguments)


# Stop and go ---------------------------------------------------------------------

_TRAINING = """
    import os, signal, sys
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import keras, numpy as np
    import keras_dp_ext as dp

    backup, kill_at, shuffled = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "shuffled"

    class Kill(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if int(self.model.optimizer.releases.numpy()) == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    x = np.random.default_rng(0).standard_normal([120, 3]).astype("float32")
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(noise_multiplier=2.0), loss="mse")
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-4)
    restore = keras.callbacks.BackupAndRestore(backup, delete_checkpoint=False)
    order = [accountant, restore, Kill()]
    if sys.argv[4] == "last":
        order = [restore, Kill(), accountant]
    data = dict(x=dp.data.poisson_batches(x, x[:, :1], batch_size=12))
    if shuffled:
        data = dict(x=x, y=x[:, :1], batch_size=12)
    history = model.fit(**data, epochs=4, verbose=0, callbacks=order)
    print("EPSILON", *history.history["epsilon"])
"""


def train_in_a_process(backup, kill_at, sampling, position) -> tuple[int, list[float]]:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(_TRAINING),
            str(backup),
            str(kill_at),
            sampling,
            position,
        ],
        capture_output=True,
        text=True,
        cwd=pathlib.Path(dp.__file__).parents[1],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("EPSILON")]
    if done.returncode not in (0, -signal.SIGKILL):
        raise AssertionError(done.stderr)
    return done.returncode, [float(v) for v in lines[-1].split()[1:]] if lines else []


@pytest.mark.parametrize(
    "sampling, position",
    [
        ("poisson", "last"),
        pytest.param("shuffled", "first", marks=pytest.mark.slow),
    ],
)
def test_a_killed_training_that_resumes_ends_with_the_same_epsilon(
    tmp_path, sampling, position
):
    code, _ = train_in_a_process(tmp_path / "backup", 25, sampling, position)
    assert code == -signal.SIGKILL
    # Two epochs were saved; the third, unfinished, is lost with its weights.
    code, resumed = train_in_a_process(tmp_path / "backup", -1, sampling, position)
    assert code == 0
    if sampling == "poisson":
        whole = [spent(releases) for releases in (10, 20, 30, 40)]
    else:
        whole = [spent(epochs, accounting.FullBatch()) for epochs in (1, 2, 3, 4)]
    assert math.isfinite(whole[-1])
    assert resumed == pytest.approx(whole[2:], rel=1e-6)
