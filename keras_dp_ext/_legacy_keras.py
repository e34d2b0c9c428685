"""Refuses an environment in which `tf.keras` is Keras 2."""

from __future__ import annotations

import os


def refuse_legacy_keras() -> None:
    """Raises an `ImportError` under TF_USE_LEGACY_KERAS, which TF-Privacy needs.

    A model of `tf.keras` is one of Keras 2 then: it would take an optimizer of Keras 3
    for something unknown, or train with it in ways that nothing here can see.
    """
    if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True"):
        raise ImportError(
            "keras_dp_ext works with Keras 3, and the environment variable "
            "TF_USE_LEGACY_KERAS makes `tf.keras` Keras 2. Unset it (it was needed for "
            "TensorFlow Privacy only), before TensorFlow is imported."
        )
