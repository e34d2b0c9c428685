"""TensorFlow Privacy's functions of plain numbers, with its signatures."""

from __future__ import annotations

import enum
import functools
import math
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import dp_accounting
from scipy import optimize

from keras_dp_ext._checks import check_count
from keras_dp_ext.accounting import FullBatch, GaussianRelease, Poisson, accountants
from keras_dp_ext.accounting.calibration import calibrate_noise


class AccountantType(enum.Enum):
    """Which accountant computes epsilon."""

    RDP = "RDP"
    PLD = "PLD"


def compute_dp_sgd_privacy(
    n: int, batch_size: int, noise_multiplier: float, epochs: float, delta: float
) -> tuple[float, float]:
    """Epsilon under Poisson sampling, without microbatches, and the best RDP order.

    As in TensorFlow Privacy it is only as good as these assumptions. The callback
    `PrivacyAccountant` knows how batches were drawn and reports what holds for them.

    Args:
        n: Number of examples in the training data.
        batch_size: Batch size.
        noise_multiplier: Standard deviation of the noise over the clipping norm.
        epochs: Number of epochs.
        delta: Target delta.
    """
    warnings.warn(
        "`compute_dp_sgd_privacy` assumes Poisson sampling "
        "(`keras_dp_ext.data.poisson_batches`) and microbatches of one example. "
        "`compute_dp_sgd_privacy_statement` shows what holds without.",
        stacklevel=2,
    )
    rate = _sampling_rate(n, batch_size)
    event = dp_accounting.PoissonSampledDpEvent(
        rate, dp_accounting.GaussianDpEvent(noise_multiplier)
    )
    accountant = dp_accounting.rdp.RdpAccountant()
    accountant.compose(event, math.ceil(epochs * n / batch_size))
    epsilon, order = accountant.get_epsilon_and_optimal_order(delta)
    return float(epsilon), float(order)


def compute_noise(
    n: int,
    batch_size: int,
    target_epsilon: float,
    epochs: float,
    delta: float,
    noise_lbd: float = 0.0,
) -> float:
    """The least noise multiplier for a target epsilon, under Poisson sampling.

    Where TensorFlow Privacy returns 0 because `noise_lbd` is more noise than the target
    needs, this returns `noise_lbd`: 0 would be a training without any noise.

    Args:
        n: Number of examples in the training data.
        batch_size: Batch size.
        target_epsilon: Greatest epsilon allowed.
        epochs: Number of epochs.
        delta: Target delta.
        noise_lbd: The result is at least this.
    """
    steps = math.ceil(epochs * n / batch_size)
    found = calibrate_noise(
        GaussianRelease,
        Poisson(_sampling_rate(n, batch_size)),
        steps,
        target_epsilon=target_epsilon,
        delta=delta,
    )
    return max(found, noise_lbd)


def compute_dp_sgd_privacy_statement(
    number_of_examples: int,
    batch_size: int,
    num_epochs: float,
    noise_multiplier: float,
    delta: float,
    used_microbatching: bool = True,
    max_examples_per_user: int | None = None,
    accountant_type: AccountantType = AccountantType.RDP,
) -> str:
    """What is guaranteed, for each way in which batches may have been drawn.

    Args:
        number_of_examples: Number of examples in the training data.
        batch_size: Examples in a batch.
        num_epochs: Number of epochs.
        noise_multiplier: Standard deviation of the noise over the clipping norm.
        delta: Target delta.
        used_microbatching: Whether microbatches had several examples, which doubles
            the sensitivity.
        max_examples_per_user: If given, a guarantee for users is computed, too.
        accountant_type: The accountant.
    """
    if not num_epochs > 0:
        raise ValueError(
            f"Argument `num_epochs` must be positive. Received: num_epochs={num_epochs}"
        )
    sigma = noise_multiplier / 2 if used_microbatching else noise_multiplier
    rate = _sampling_rate(number_of_examples, batch_size)
    accountant = accountant_type.value.lower()
    release = GaussianRelease(sigma)
    trainings = {
        "each example once per epoch": (release, FullBatch(), math.ceil(num_epochs)),
        "Poisson sampling (*)": (release, Poisson(rate), math.ceil(num_epochs / rate)),
    }

    def table(of: Callable[..., Any]) -> str:
        return "\n".join(
            f"    epsilon with {name + ':':30}{of(entry):12.3f}"
            for name, entry in trainings.items()
        )

    users = (
        "no bound on the number of examples per user"
        if max_examples_per_user is None
        else f"at most {max_examples_per_user} examples per user"
    )
    paragraphs = [
        _fill(
            f"DP-SGD performed over {number_of_examples} examples with {batch_size} "
            f"examples per iteration, noise multiplier {noise_multiplier} for "
            f"{num_epochs} epochs {'with' if used_microbatching else 'without'} "
            f"microbatching, and {users}. The guarantee covers all intermediate weights "
            "together."
        ),
        f"Example-level, adding or removing one, delta = {delta}, {accountant_type.value}:"
        "\n" + table(lambda entry: accountants.epsilon([entry], delta, accountant)),
    ]
    if max_examples_per_user is None:
        paragraphs.append("Without a bound per user there is no user-level guarantee.")
    else:
        paragraphs.append(
            f"User-level, adding or removing one, delta = {delta}, by group privacy:\n"
            + table(lambda entry: _user_epsilon(entry, delta, max_examples_per_user))
        )
    paragraphs.append(
        _fill(
            "(*) Holds for `keras_dp_ext.data.poisson_batches`. Batches of shuffled data "
            "are not Poisson samples: nothing proves the smaller figure for them."
        )
    )
    return "\n\n".join(paragraphs) + "\n"


def _user_epsilon(entry: Any, delta: float, examples: int) -> float:
    """Group privacy: Vadhan, "The complexity of differential privacy", Lemma 2.2.

    (eps, d)-DP for one example is (k eps, d (e^(k eps) - 1) / (e^eps - 1))-DP for k of
    them; the d is searched for which this is `delta`.
    """
    check_count("max_examples_per_user", examples)
    if examples == 1:
        return accountants.epsilon([entry], delta)

    @functools.cache
    def one(log_delta: float) -> float:
        return accountants.epsilon([entry], math.exp(log_delta))

    def excess(log_delta: float) -> float:
        epsilon = one(log_delta)
        growth = _log_expm1(examples * epsilon) - _log_expm1(epsilon)
        return log_delta + growth - math.log(delta)

    high = math.log(delta)
    if excess(high) <= 0:
        return examples * one(high)
    low = high
    while excess(low) > 0:
        low -= math.log(10.0) + excess(low)
        if low < -700:
            return math.inf
    return examples * one(optimize.brentq(excess, low, high, xtol=1e-6))


def _log_expm1(x: float) -> float:
    return x + math.log(-math.expm1(-x))


def _sampling_rate(examples: int, batch_size: int) -> float:
    if not 0 < batch_size <= examples:
        raise ValueError(
            "The batch must not be larger than the data. Received: batch_size="
            f"{batch_size} for {examples} examples"
        )
    return batch_size / examples


def _fill(text: str) -> str:
    return textwrap.fill(text, width=80)
