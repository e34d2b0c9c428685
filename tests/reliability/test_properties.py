"""Properties that hold for any input, searched for counterexamples."""

import contextlib
import io
import json
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import keras_dp_ext as dp
from keras_dp_ext.accounting import Claim, GaussianRelease, Ledger, Poisson, Shuffled
from keras_dp_ext.cli.main import main
from keras_dp_ext.gradients import MaterializedGradients

QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck)
)

# Every float32 there is: zeros, denormals, the largest, infinities and NaN.
rows = hnp.arrays(np.float32, (3, 6), elements=st.floats(width=32))
clips = st.floats(1e-6, 1e6)


def contribution(mechanism, gradients, row):
    """What one row adds to the bounded sum."""

    def total(values):
        parts = [values[:, :4].reshape(-1, 2, 2), values[:, 4:]]
        sums = mechanism.bound(MaterializedGradients([tf.constant(p) for p in parts]))
        return np.concatenate([np.ravel(s) for s in sums]).astype(np.float64)

    without = gradients.copy()
    without[row] = 0.0
    return total(gradients) - total(without)


@QUICK
@given(rows, clips)
def test_no_row_moves_the_sum_of_dpsgd_further_than_its_clip(gradients, clip):
    mechanism = dp.mechanisms.DPSGD(l2_norm_clip=clip)
    moved = contribution(mechanism, gradients, 0)
    assert np.linalg.norm(moved) <= clip * (1 + 1e-5)


@QUICK
@given(rows, st.floats(1e-2, 1e4), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_no_row_moves_the_sum_of_tanh_further_than_its_clip(gradients, clip, c, k):
    mechanism = dp.mechanisms.Tanh(
        l2_norm_clip=clip, output_range=c, active_range=k, guarantee="proven"
    )
    moved = contribution(mechanism, gradients, 1)
    assert np.linalg.norm(moved) <= clip * (1 + 1e-5)


@QUICK
@given(rows, st.sampled_from(["bucket", "exact"]))
def test_every_encoded_row_is_dominated_by_the_codebook(gradients, ranking):
    codebook = dp.bounding.Codebook(size=4)
    mechanism = dp.mechanisms.Encoded(codebook=codebook, ranking=ranking)
    moved = np.sort(np.abs(contribution(mechanism, gradients, 2)))[::-1]
    # Differences of float32 sums of up to three rows of norm 1.
    assert np.linalg.norm(moved) <= codebook.norm + 1e-5


multipliers = st.floats(0.3, 20.0)
rates = st.floats(1e-4, 1.0)
counts = st.integers(1, 5000)


def spent(multiplier, rate, count, delta=1e-5):
    return dp.accounting.epsilon(
        [(GaussianRelease(multiplier), Poisson(rate), count)], delta
    )


@settings(max_examples=25, deadline=None)
@given(multipliers, rates, counts)
def test_epsilon_grows_with_what_is_released(multiplier, rate, count):
    epsilon = spent(multiplier, rate, count)
    slack = 1 + 1e-9
    assert 0 <= epsilon <= spent(multiplier, rate, count + 1) * slack
    if rate < 0.45 and epsilon < 20:
        # Beyond one half, dp_accounting forgoes amplification for some low orders. It
        # leaves out orders below 1.8 whose series does not converge at this rate, on
        # which a greater epsilon may rest.
        assert epsilon <= spent(multiplier, 1.1 * rate, count) * slack
    assert spent(1.1 * multiplier, rate, count) <= epsilon * slack
    assert spent(multiplier, rate, count, delta=1e-4) <= epsilon * slack
    assert epsilon <= spent(multiplier, 1.0, count) * slack


segments = st.lists(
    st.tuples(
        st.integers(0, 50),
        multipliers,
        st.one_of(
            rates.map(Poisson),
            st.builds(Shuffled, steps_per_epoch=st.integers(1, 9), rate=rates),
        ),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(segments, st.integers(0, 50))
def test_a_ledger_loses_no_release_and_survives_json(parts, last):
    ledger, start = Ledger(), 0
    for count, multiplier, sampling in parts:
        ledger.open(start, Claim(GaussianRelease(multiplier)), sampling)
        start += count
    total = start + last
    entries = ledger.entries(total)
    assert sum(count for _, _, count in entries) == total
    restored = Ledger.from_json(ledger.to_json())
    assert restored == ledger
    assert restored.entries(total) == entries


# The command line ------------------------------------------------------------

numbers = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.integers(-10, 10**12).map(str),
    st.sampled_from(["", "abc", "1e", "--", "NaN", "-inf", "1_0", "0x10", "²"]),
)
options = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "--num-examples",
                "--batch-size",
                "--epochs",
                "--steps",
                "--noise-multiplier",
                "--delta",
                "--mechanism",
                "--noise",
                "--accountant",
                "--nonsense",
            ]
        ),
        numbers,
    ),
    max_size=6,
)


def command_line(arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as exit_:
            code = exit_.code
    return code or 0, out.getvalue(), err.getvalue()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["epsilon", "calibrate", "", "frobnicate"]), options)
def test_no_argument_makes_the_command_line_crash(command, pairs):
    arguments = [part for pair in pairs for part in pair]
    code, _, err = command_line([*([command] if command else []), *arguments])
    assert code in (0, 1, 2)
    assert "Traceback" not in err


@settings(max_examples=25, deadline=None)
@given(st.integers(100, 10**6), st.floats(0.4, 10.0), st.integers(1, 3000))
def test_the_command_line_prints_the_accountants_epsilon(examples, multiplier, steps):
    batch = max(1, examples // 50)
    code, out, err = command_line(
        f"epsilon --num-examples {examples} --batch-size {batch} --steps {steps} "
        f"--noise-multiplier {multiplier!r} --delta 1e-5 --json".split()
    )
    assert code == 0, err
    printed = json.loads(out)["epsilon"]
    expected = spent(multiplier, batch / examples, steps)
    assert math.isfinite(printed)
    assert printed == pytest.approx(expected, rel=1e-6)
