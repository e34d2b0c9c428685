"""Arguments that do not change: what is trained with is what is accounted for."""

from __future__ import annotations

from typing import Any

from keras_dp_ext.optimizers.base_update import KerasOptimizer

# Constants of the traced step and terms of the claim: both must stay the same.
_FIXED_ONCE_BUILT = frozenset(
    {
        "mechanism",
        "num_microbatches",
        "expected_batch_size",
        "noise_seed",
        "secure_noise",
        "chunk_bytes",
        "physical_batch_size",
        "memory_limit",
    }
)

# The constructor checks them against others, and tells Keras of them.
_FIXED_ONCE_MADE = frozenset({"physical_batch_size", "memory_limit"})


class FixedArguments(KerasOptimizer):
    """The part of `PrivateOptimizer` that refuses a late change of its arguments."""

    built: bool

    # Set by the constructor when it is done.
    _constructed = False

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "loss_scale_factor" and self._constructed:
            # What LossScaleOptimizer does when it takes an optimizer over.
            raise ValueError(
                f"{type(self).__name__} cannot be wrapped in LossScaleOptimizer, "
                "which skips updates depending on the data. With the mixed_float16 "
                "policy, call `model.compile(..., auto_scale_loss=False)`, or use "
                "mixed_bfloat16, which needs no scaling. Received: "
                f"loss_scale_factor={value}"
            )
        if name in _FIXED_ONCE_BUILT and self._constructed and self.built:
            raise ValueError(
                f"`{name}` must not change once the optimizer is built: training "
                "goes on with the old value while epsilon is computed for the new "
                "one. Make a new optimizer, and call its `continue_from` with this one. "
                f"Received: {name}={value}"
            )
        if name in _FIXED_ONCE_MADE and self._constructed:
            raise ValueError(
                f"`{name}` is an argument of the constructor and cannot be set later. "
                f"Received: {name}={value}"
            )
        super().__setattr__(name, value)
