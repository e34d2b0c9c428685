"""Epsilon of a trained model: its optimizer's ledger, and what its layers have spent."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_dp_ext.accounting.figures import figure_epsilon
from keras_dp_ext.accounting.records import LedgerEntry


def epsilon_of(
    model: Any, delta: float, accountant: str = "rdp", figure: str = "proven"
) -> float:
    """Epsilon of all that a model's private optimizer has released so far.

    Also without `PrivacyAccountant`, where `fit` could see how batches were drawn.

    Args:
        model: A Keras model that was compiled with a private optimizer.
        delta: Target delta.
        accountant: "rdp" or "pld".
        figure: "proven", "published" or "if_poisson"; see `Ledger.epsilon`.

    Returns:
        Epsilon, possibly infinite.

    Raises:
        ValueError: If the optimizer is not private, or the cost of a release is
            unknown.

    Example:

    >>> import keras, numpy as np, keras_dp_ext as dp
    >>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    >>> model.compile(dp.optimizers.DPSGD(noise_multiplier=4.0), loss="mse")
    >>> data = dp.data.poisson_batches(np.ones([90, 2]), np.ones([90, 1]), batch_size=9)
    >>> history = model.fit(data, verbose=0)
    >>> round(dp.accounting.epsilon_of(model, delta=1e-3), 2)
    0.2
    """
    optimizer = private_optimizer_of(model)
    record_layers_of(model)
    return figure_epsilon(entries_of(optimizer), figure, delta, accountant)


def private_optimizer_of(model: Any) -> Any:
    """The model's optimizer, or another private one among its attributes (a GAN's).

    Of several that train on the same lots, each has the releases of all of them in
    its ledger.

    Raises:
        ValueError: If none is private.
    """
    optimizer = getattr(model, "optimizer", None)
    for candidate in (optimizer, *vars(model).values()):
        if hasattr(candidate, "privacy_claim"):
            return candidate
    raise ValueError(
        "Epsilon needs a private optimizer, such as "
        "`keras_dp_ext.optimizers.DPSGD`: this training has no privacy at "
        f"all. Received: optimizer={type(optimizer).__name__}"
    )


def record_layers_of(model: Any, data: Any = None) -> None:
    """Puts into the ledger what layers of the model, or of a pipeline, have spent."""
    # Imported here: accounting alone does without TensorFlow, which a model has loaded.
    from keras_dp_ext.data.layers import adapted

    layers = [*adapted.layers_of_model(model), *adapted.layers_of_pipeline(data)]
    adapted.record_layers(private_optimizer_of(model).ledger, layers)


def entries_of(optimizer: Any, releases: int | None = None) -> list[LedgerEntry]:
    """The ledger's entries, with what the mechanism has recorded itself.

    A mechanism whose noise depends on earlier releases knows the cost of a release
    only afterwards, and offers `recorded_events()`.
    """
    entries = optimizer.ledger.entries(releases)
    recorded = None
    mechanism: Any = getattr(optimizer, "mechanism", None)
    if entries and hasattr(mechanism, "recorded_events"):
        recorded = mechanism.recorded_events(optimizer._claimed_group())
    if recorded is None:
        return entries
    claim = optimizer.privacy_claim()
    mine = [entry for entry in entries if entry[0] == claim]
    samplings = {sampling for _, sampling, _ in mine}
    counted = sum(count for _, count in recorded)
    if len(samplings) != 1 or counted < sum(count for _, _, count in mine):
        # It cannot be told which release was sampled how: the claim holds.
        return entries
    (sampling,) = samplings
    # One participation in an epoch may each time be in the release with the least noise.
    sampling = sampling.in_any_order()
    return [entry for entry in entries if entry[0] != claim] + [
        (dataclasses.replace(claim, proven=event), sampling, count)
        for event, count in recorded
    ]
