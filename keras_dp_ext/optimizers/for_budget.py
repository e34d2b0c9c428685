"""From a budget to an optimizer: the noise is what is looked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_dp_ext.accounting.budget import OVERFLOW_DELTA, checked_delta
from keras_dp_ext.accounting.calibration import calibrate_noise
from keras_dp_ext.accounting.training_plan import TrainingPlan

if TYPE_CHECKING:
    from keras_dp_ext.accounting.accountants import Entry
    from keras_dp_ext.accounting.events import Event
    from keras_dp_ext.data.layers.privately_adapted import PrivatelyAdapted
    from keras_dp_ext.mechanisms.base import Mechanism


def for_budget(
    cls: Any,
    *,
    epsilon: float,
    num_examples: int,
    batch_size: int,
    epochs: float | None = None,
    steps: int | None = None,
    delta: float | None = None,
    sampling: str | None = None,
    accountant: str = "rdp",
    num_parameters: int | None = None,
    adapted: Sequence[PrivatelyAdapted] = (),
    **arguments: Any,
) -> Any:
    """An optimizer whose noise makes a training end at the given epsilon.

    Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
    `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
    keeps to the budget whatever else happens.

    Args:
        epsilon: Greatest epsilon that the training may spend. The optimizer's own
            argument of that name (Adam's) is called `base_epsilon` here.
        num_examples: Size of the training set.
        batch_size: (Expected) examples of one update.
        epochs: Passes over the data.
        steps: Number of updates, in place of epochs.
        delta: Target delta. By default the greatest power of ten below
            `1 / num_examples`.
        sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
            default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
            for correlated noise "cyclic-poisson" (the default of BandMF) or
            "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
        accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
        num_parameters: `model.count_params()`, for mechanisms whose cost depends on
            it, such as encoding.
        adapted: Layers that were adapted on the same data, such as
            `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
        **arguments: All other arguments of the optimizer, but its noise.

    Raises:
        ValueError: If an argument is out of range, or no noise is enough.

    Example:

    >>> import keras_dp_ext as dp
    >>> optimizer = dp.optimizers.DPSGD.for_budget(
    ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
    ...     learning_rate=0.15,
    ... )
    >>> round(optimizer.mechanism.noise_multiplier, 2)
    1.01
    """
    if "noise_multiplier" in arguments:
        raise ValueError(
            "Argument `noise_multiplier` is what `for_budget` finds. Received: "
            f"noise_multiplier={arguments['noise_multiplier']}"
        )
    if "base_epsilon" in arguments:
        arguments["epsilon"] = arguments.pop("base_epsilon")
    mechanism = cls.mechanism_class
    known = {*mechanism.argument_names(), *_arguments_of(mechanism.arguments_at)}
    own = {name: arguments.pop(name) for name in known & set(arguments)}
    sampling = sampling or mechanism.default_sampling
    unit = mechanism(**mechanism.arguments_at(1.0, **own))
    plan = TrainingPlan(
        num_examples,
        batch_size,
        epochs,
        steps,
        sampling,
        overflow_delta=OVERFLOW_DELTA,
        cycle=unit.cycle,
    )
    own = {**mechanism.planned_arguments(plan), **own}
    group = _examples_per_microbatch(batch_size, arguments.get("num_microbatches"))

    def event_at(multiplier: float) -> Event:
        instance = mechanism(**mechanism.arguments_at(multiplier, **own))
        return _event(cls, instance, num_parameters, group)

    multiplier = calibrate_noise(
        event_at,
        plan.scheme,
        plan.required_releases(),
        target_epsilon=epsilon,
        delta=checked_delta(delta, num_examples),
        accountant=accountant,
        others=[entry for layer in adapted for entry in _entries_of(layer)],
    )
    return cls(**mechanism.arguments_at(multiplier, **own), **arguments)


def _arguments_of(function: Callable[..., Any]) -> set[str]:
    return {
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD and name != "noise_multiplier"
    }


def _event(
    cls: type, mechanism: Mechanism, num_parameters: int | None, group: int
) -> Event:
    if num_parameters is not None:
        return mechanism.claim(num_parameters, group).proven
    event = mechanism.claim(2, group).proven
    if event != mechanism.claim(3, group).proven:
        raise ValueError(
            f"What {cls.__name__} costs depends on the number of weights: pass "
            "`num_parameters=model.count_params()`. Received: num_parameters=None"
        )
    return event


def _entries_of(layer: PrivatelyAdapted) -> list[Entry]:
    """What a layer has released."""
    releases = layer.privacy_releases()
    if not releases:
        raise ValueError(
            "Argument `adapted` must hold layers that have seen their data: call "
            f"`{layer.name}.adapt(...)` first, or leave the layer out."
        )
    return [(one.claim.proven, one.sampling, one.count) for one in releases]


def _examples_per_microbatch(batch_size: int, num_microbatches: int | None) -> int:
    """As the optimizer has it; several when in doubt."""
    if num_microbatches is None or num_microbatches == batch_size:
        return 1
    return max(2, batch_size // num_microbatches)
