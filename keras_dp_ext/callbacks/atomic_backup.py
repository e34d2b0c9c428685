"""Backups that a kill in the middle of writing cannot destroy."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext._compat import keras_internals, keras_workers, tf_workers


class AtomicBackup(keras.callbacks.BackupAndRestore):
    """`keras.callbacks.BackupAndRestore` whose files are whole at every moment.

    Keras writes over the backup it has. A process that is killed while it does so
    leaves half a file, and the training cannot be resumed (or, with
    `double_checkpoint=True`, only from the backup before). Here a file takes its
    place when it is complete. Weights, optimizer state and the spent budget are in
    one file, so that they always belong together.

    Under `MultiWorkerMirroredStrategy` the first worker writes the backup, and all
    workers go on from it, whether or not they see its disk: backups of their own could
    be of different epochs.

    Args:
        backup_dir: Folder of the backup, on a local file system; with several workers,
            on one of the first worker.
        save_freq: "epoch", or after how many batches to save.
        delete_checkpoint: Whether the backup is removed when training has ended.
            It holds the sums of an unfinished lot, which are not noised: do not
            share it.

    Example:

    >>> import keras_dp_ext as dp
    >>> backup = dp.callbacks.AtomicBackup("backup", save_freq=100)
    """

    # Set by Keras.
    _weights_path: str
    _training_metadata_path: str

    def __init__(
        self,
        backup_dir: str | os.PathLike,
        save_freq: str | int = "epoch",
        delete_checkpoint: bool = True,
    ):
        super().__init__(
            os.fspath(backup_dir), save_freq, delete_checkpoint=delete_checkpoint
        )
        keras_internals.check_backup(self)

    def _load_model(self) -> None:
        if not self._is_shared():
            super()._load_model()
            return
        own = self._weights_path, self._training_metadata_path
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, os.path.basename(path)) for path in own]
            for source, copy in zip(own, paths, strict=True):
                _copy_of_first_worker(self.model.distribute_strategy, source, copy)
            self._weights_path, self._training_metadata_path = paths
            try:
                super()._load_model()
            finally:
                self._weights_path, self._training_metadata_path = own

    def _save_model(self) -> None:
        if self._is_shared() and tf_workers.this_worker().index > 0:
            return
        os.makedirs(self.backup_dir, exist_ok=True)
        weights = os.path.join(self.backup_dir, "next.weights.h5")
        self.model.save_weights(weights, overwrite=True)
        _move(weights, self._weights_path)
        # Killed here, training repeats an epoch: more is spent, and accounted.
        metadata = os.path.join(self.backup_dir, "next.json")
        with open(metadata, "w") as file:
            json.dump(
                {"epoch": self._current_epoch, "batch": self._last_batch_seen}, file
            )
        _move(metadata, self._training_metadata_path)

    def on_train_end(self, logs: Any = None) -> None:
        if not self._is_shared() or tf_workers.this_worker().index == 0:
            super().on_train_end(logs)

    def _is_shared(self) -> bool:
        return keras_workers.has_several_workers(self.model.distribute_strategy)


def _copy_of_first_worker(
    strategy: tf.distribute.Strategy, source: str, copy: str
) -> None:
    """Writes what the first worker has at `source` to `copy`, if it has anything.

    It goes the way of the gradients, as a sum to which only the first worker adds.
    """
    content = np.zeros(0, np.uint8)
    is_first = tf_workers.this_worker().index == 0
    if is_first and os.path.exists(source):
        content = np.fromfile(source, np.uint8)

    def total(values: np.ndarray) -> np.ndarray:
        def own(context: Any) -> tf.Tensor:
            is_source = context.replica_id_in_sync_group == 0
            return tf.constant(values if is_source else np.zeros_like(values))

        shares = strategy.experimental_distribute_values_from_function(own)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, shares, axis=None).numpy()

    size = int(total(np.array([content.size], np.int64))[0])
    if size == 0:
        return
    words = np.zeros(-(-size // 4), np.int32)
    words.view(np.uint8)[: content.size] = content
    total(words).view(np.uint8)[:size].tofile(copy)


def _move(source: str, target: str) -> None:
    """Replaces `target` by a file that is on the disk in full."""
    with open(source, "rb") as file:
        os.fsync(file.fileno())
    os.replace(source, target)
