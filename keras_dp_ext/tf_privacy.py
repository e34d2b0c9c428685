"""Drop-in names for those who come from TensorFlow Privacy.

The signatures are TensorFlow Privacy's: the privacy arguments first, then those of
the Keras optimizer. A loss with `reduction=None` works as it did there, and so does
a loss with any other reduction. What differs is told in docs/migrating.md.

Example:

>>> from keras_dp_ext.tf_privacy import DPKerasSGDOptimizer
>>> optimizer = DPKerasSGDOptimizer(
...     l2_norm_clip=1.0, noise_multiplier=1.1, num_microbatches=250, learning_rate=0.15
... )
>>> optimizer.num_microbatches
250
"""

from __future__ import annotations

import inspect

import keras

from keras_dp_ext import optimizers


def _with_signature_of_tf_privacy(private_class, name: str):
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
            *args,
            expected_batch_size: int | None = None,
            noise_seed: int | None = None,
            **kwargs,
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


DPKerasSGDOptimizer = _with_signature_of_tf_privacy(
    optimizers.DPSGD, "DPKerasSGDOptimizer"
)
DPKerasAdamOptimizer = _with_signature_of_tf_privacy(
    optimizers.DPAdam, "DPKerasAdamOptimizer"
)
DPKerasAdagradOptimizer = _with_signature_of_tf_privacy(
    optimizers.DPAdagrad, "DPKerasAdagradOptimizer"
)

__all__ = [
    "DPKerasAdagradOptimizer",
    "DPKerasAdamOptimizer",
    "DPKerasSGDOptimizer",
]
