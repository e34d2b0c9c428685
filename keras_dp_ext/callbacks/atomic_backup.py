"""Backups that a kill in the middle of writing cannot destroy."""

from __future__ import annotations

import json
import os

import keras

from keras_dp_ext._compat import keras_internals


class AtomicBackup(keras.callbacks.BackupAndRestore):
    """`keras.callbacks.BackupAndRestore` whose files are whole at every moment.

    Keras writes over the backup it has. A process that is killed while it does so
    leaves half a file, and the training cannot be resumed (or, with
    `double_checkpoint=True`, only from the backup before). Here a file takes its
    place when it is complete. Weights, optimizer state and the spent budget are in
    one file, so that they always belong together.

    Args:
        backup_dir: Folder of the backup, on a local file system.
        save_freq: "epoch", or after how many batches to save.
        delete_checkpoint: Whether the backup is removed when training has ended.
            It holds the sums of an unfinished lot, which are not noised: do not
            share it.

    Example:

    >>> import keras_dp_ext as dp
    >>> backup = dp.callbacks.AtomicBackup("backup", save_freq=100)
    """

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

    def _save_model(self) -> None:
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


def _move(source: str, target: str) -> None:
    """Replaces `target` by a file that is on the disk in full."""
    with open(source, "rb") as file:
        os.fsync(file.fileno())
    os.replace(source, target)
