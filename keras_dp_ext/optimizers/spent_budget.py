"""The spent budget in TensorFlow's own checkpoints: restored, never given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat import tf_internals


class SpentBudget(tf_internals.trackable_class()):  # type: ignore[misc]
    """What `tf.train.Checkpoint` sees of an optimizer's counter and ledger.

    As plain variables both would be overwritten by whatever a checkpoint holds:
    going back to older weights would make the releases since then forgotten.

    Args:
        read: Returns the number of releases and the ledger's JSON.
        restore: Is handed those of a checkpoint.
    """

    def __init__(
        self, read: Callable[[], tuple[int, str]], restore: Callable[[int, str], None]
    ):
        self._read = read
        self._restore = restore

    def _serialize_to_tensors(self) -> dict[str, Any]:
        releases, ledger = self._read()
        return {
            "releases": tf.constant(releases, tf.int64),
            "ledger": tf.constant(ledger),
        }

    def _restore_from_tensors(self, restored_tensors: Any) -> Any:
        # TensorFlow may trace this; the restore itself must run in Python.
        return tf.py_function(
            lambda releases, ledger: self._restore(
                int(releases.numpy()), ledger.numpy().decode()
            ),
            [restored_tensors["releases"], restored_tensors["ledger"]],
            [],
        )
