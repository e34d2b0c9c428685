"""What to look at when the figures of an epoch look wrong."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping


def warn_of_loss_that_is_not_finite(logs: Mapping[str, float]) -> bool:
    """Warns if the loss is NaN or infinite; returns whether it did."""
    loss = logs.get("loss")
    if loss is None or math.isfinite(loss):
        return False
    warnings.warn(
        f"The loss of this epoch is {loss:g}. Either some rows of the data hold NaN or "
        "infinity (they count as zero in the update, so the weights and epsilon are "
        "sound, but one such row spoils the average that is shown), or the training "
        "diverged: look at `val_loss`, and lower the learning rate. "
        "`keras_dp_ext.callbacks.DroppedExamples()` counts such rows.",
        stacklevel=3,
    )
    return True
