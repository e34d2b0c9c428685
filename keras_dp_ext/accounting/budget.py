"""Epsilon of a training, and noise for an epsilon, from plain numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, overload

from keras_dp_ext.accounting import accountants
from keras_dp_ext.accounting.calibration import calibrate_noise
from keras_dp_ext.accounting.default_delta import default_delta, warn_of_large_delta
from keras_dp_ext.accounting.events import GaussianRelease
from keras_dp_ext.accounting.training_plan import TrainingPlan

if TYPE_CHECKING:
    from keras_dp_ext.accounting.accountants import Entry

# What `dp.data.poisson_batches` may add to delta in each step: a training that is
# calibrated here stays within its budget there.
OVERFLOW_DELTA = 1e-12


@overload
def epsilon(
    entries: Iterable[accountants.Entry],
    delta: float,
    accountant: str = "rdp",
    conversion: str = "tight",
) -> float: ...


@overload
def epsilon(
    *,
    noise_multiplier: float,
    num_examples: int,
    batch_size: int,
    epochs: float | None = None,
    steps: int | None = None,
    delta: float | None = None,
    sampling: str = "poisson",
    accountant: str = "rdp",
) -> float: ...


def epsilon(
    entries: Iterable[Entry] | None = None,
    delta: float | None = None,
    accountant: str = "rdp",
    conversion: str = "tight",
    *,
    noise_multiplier: float | None = None,
    num_examples: int | None = None,
    batch_size: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    sampling: str = "poisson",
) -> float:
    """Epsilon of a training with Gaussian noise, or of entries of a ledger.

    Args:
        entries: Triples of event, sampling and number of releases, in place of all
            that follows `conversion`.
        delta: Target delta. By default the greatest power of ten below
            `1 / num_examples`.
        accountant: "rdp", or "pld", which is tighter.
        conversion: Of RDP to epsilon; see `epsilon_from_rdp`.
        noise_multiplier: Standard deviation of the noise over the clipping norm.
        num_examples: Size of the training set.
        batch_size: (Expected) examples of one update.
        epochs: Passes over the data.
        steps: Number of updates, in place of epochs.
        sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`),
            "balls-in-bins", "shuffled" (arrays in `model.fit`), "with-replacement" or
            "full-batch".

    Returns:
        Epsilon, possibly infinite.

    Example:

    >>> round(epsilon(noise_multiplier=1.1, num_examples=60_000, batch_size=256,
    ...               epochs=60, delta=1e-5), 2)
    2.59
    """
    options = {"conversion": conversion} if conversion != "tight" else {}
    if entries is not None:
        if noise_multiplier is not None or num_examples is not None:
            raise ValueError(
                "Pass `entries`, or `noise_multiplier`, `num_examples`, ..., not both."
            )
        if delta is None:
            raise ValueError("Argument `delta` is needed with `entries`.")
        return accountants.epsilon(entries, delta, accountant, **options)
    _require(
        noise_multiplier=noise_multiplier,
        num_examples=num_examples,
        batch_size=batch_size,
    )
    assert noise_multiplier is not None
    assert num_examples is not None and batch_size is not None
    plan = TrainingPlan(num_examples, batch_size, epochs, steps, sampling)
    entry = GaussianRelease(noise_multiplier), plan.scheme, plan.required_releases()
    return accountants.epsilon(
        [entry], checked_delta(delta, num_examples), accountant, **options
    )


def calibrate(
    epsilon: float,
    *,
    num_examples: int,
    batch_size: int,
    epochs: float | None = None,
    steps: int | None = None,
    delta: float | None = None,
    sampling: str = "poisson",
    accountant: str = "rdp",
) -> float:
    """The least noise multiplier whose epsilon is at most the given one.

    It holds for `DPSGD`, `DPAdam` and all others with Gaussian noise; any optimizer
    has `for_budget`.

    Args:
        epsilon: Greatest epsilon allowed.
        num_examples: Size of the training set.
        batch_size: (Expected) examples of one update.
        epochs: Passes over the data.
        steps: Number of updates, in place of epochs.
        delta: Target delta. By default the greatest power of ten below
            `1 / num_examples`.
        sampling: As for `epsilon`.
        accountant: "rdp", or "pld", which is tighter.

    Example:

    >>> sigma = calibrate(3.0, num_examples=60_000, batch_size=256, epochs=60)
    >>> round(sigma, 2)
    1.01
    """
    plan = TrainingPlan(
        num_examples,
        batch_size,
        epochs,
        steps,
        sampling,
        overflow_delta=OVERFLOW_DELTA,
    )
    return calibrate_noise(
        GaussianRelease,
        plan.scheme,
        plan.required_releases(),
        target_epsilon=epsilon,
        delta=checked_delta(delta, num_examples),
        accountant=accountant,
    )


def checked_delta(delta: float | None, num_examples: int) -> float:
    """The given delta, with a warning if it is large; or the default."""
    if delta is None:
        return default_delta(num_examples)
    warn_of_large_delta(delta, num_examples)
    return delta


def _require(**arguments: Any) -> None:
    missing = [f"`{name}`" for name, value in arguments.items() if value is None]
    if missing:
        raise ValueError(f"Argument {', '.join(missing)} must be given. Received: None")
