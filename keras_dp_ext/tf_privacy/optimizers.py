"""TensorFlow Privacy's optimizers, by its names and with its signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras

from keras_dp_ext import optimizers


def _with_signature_of_tf_privacy(private_class: Any, name: str) -> type:
    """The class with TensorFlow Privacy's order of arguments."""
    base_arguments = [
        argument.name
        for argument in inspect.signature(private_class.base_class).parameters.values()
        if argument.kind is argument.POSITIONAL_OR_KEYWORD
    ]

    class DPKerasOptimizer(private_class):
        def __init__(
            self,
            l2_norm_clip: float,
            noise_multiplier: float,
            num_microbatches: int | None = None,
            gradient_accumulation_steps: int | None = 1,
            *args: Any,
            expected_batch_size: int | None = None,
            noise_seed: int | None = None,
            **kwargs: Any,
        ):
            if len(args) > len(base_arguments):
                raise TypeError(
                    f"{name} takes at most {4 + len(base_arguments)} positional "
                    f"arguments. Received: {4 + len(args)}"
                )
            for argument, value in zip(base_arguments, args, strict=False):
                if argument in kwargs:
                    raise TypeError(f"{name} got two values for `{argument}`")
                kwargs[argument] = value
            super().__init__(
                l2_norm_clip=l2_norm_clip,
                noise_multiplier=noise_multiplier,
                num_microbatches=num_microbatches,
                gradient_accumulation_steps=gradient_accumulation_steps,
                expected_batch_size=expected_batch_size,
                noise_seed=noise_seed,
                **kwargs,
            )

    base = private_class.base_class.__name__
    # Without the signature of the private optimizer that it inherits.
    DPKerasOptimizer.__signature__ = _without_self(DPKerasOptimizer.__init__)
    DPKerasOptimizer.__name__ = DPKerasOptimizer.__qualname__ = name
    DPKerasOptimizer.__doc__ = (
        f"`keras_dp_ext.optimizers.{private_class.__name__}` with the name and the "
        f"signature of TensorFlow Privacy.\n\nArgs:\n"
        "    l2_norm_clip: Largest L2 norm of one microbatch's gradient.\n"
        "    noise_multiplier: Standard deviation of the noise over `l2_norm_clip`.\n"
        "    num_microbatches: Microbatches of a batch; `None`: one per example.\n"
        "    gradient_accumulation_steps: Batches that make up one lot.\n"
        "    expected_batch_size: Public size of a lot; found by itself in `fit`.\n"
        "    noise_seed: For tests only.\n"
        f"    *args, **kwargs: The arguments of `keras.optimizers.{base}`.\n"
    )
    return keras.saving.register_keras_serializable("keras_dp_ext", name)(
        DPKerasOptimizer
    )


def _without_self(function: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(function)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _vectorized(optimizer_class: type, name: str) -> type:
    """The same with the arguments of TensorFlow Privacy's vectorised optimizers.

    Nothing else differs: per-example gradients are always vectorised here.
    """

    class VectorizedDPKerasOptimizer(optimizer_class):
        def __init__(
            self,
            l2_norm_clip: float,
            noise_multiplier: float,
            num_microbatches: int | None = None,
            unconnected_gradients_to_zero: bool = False,
            *args: Any,
            gradient_accumulation_steps: int | None = 1,
            **kwargs: Any,
        ):
            # Weights that a loss does not depend on have gradients of zero.
            del unconnected_gradients_to_zero
            super().__init__(
                l2_norm_clip,
                noise_multiplier,
                num_microbatches,
                gradient_accumulation_steps,
                *args,
                **kwargs,
            )

    VectorizedDPKerasOptimizer.__name__ = name
    VectorizedDPKerasOptimizer.__qualname__ = name
    VectorizedDPKerasOptimizer.__doc__ = optimizer_class.__doc__
    # Without the signature of the private optimizer that it inherits.
    VectorizedDPKerasOptimizer.__signature__ = _without_self(
        VectorizedDPKerasOptimizer.__init__
    )
    return keras.saving.register_keras_serializable("keras_dp_ext", name)(
        VectorizedDPKerasOptimizer
    )


DPKerasSGDOptimizer = _with_signature_of_tf_privacy(
    optimizers.DPSGD, "DPKerasSGDOptimizer"
)
DPKerasAdamOptimizer = _with_signature_of_tf_privacy(
    optimizers.DPAdam, "DPKerasAdamOptimizer"
)
DPKerasAdagradOptimizer = _with_signature_of_tf_privacy(
    optimizers.DPAdagrad, "DPKerasAdagradOptimizer"
)

VectorizedDPKerasSGDOptimizer = _vectorized(
    DPKerasSGDOptimizer, "VectorizedDPKerasSGDOptimizer"
)
VectorizedDPKerasAdamOptimizer = _vectorized(
    DPKerasAdamOptimizer, "VectorizedDPKerasAdamOptimizer"
)
VectorizedDPKerasAdagradOptimizer = _vectorized(
    DPKerasAdagradOptimizer, "VectorizedDPKerasAdagradOptimizer"
)
