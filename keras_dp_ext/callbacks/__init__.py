"""Keras callbacks: the privacy accountant, and what mechanisms need beside a step."""

from keras_dp_ext.callbacks.atomic_backup import AtomicBackup
from keras_dp_ext.callbacks.dropped_examples import DroppedExamples
from keras_dp_ext.callbacks.full_batch_direction import FullBatchDirection
from keras_dp_ext.callbacks.privacy_accountant import PrivacyAccountant

__all__ = [
    "AtomicBackup",
    "DroppedExamples",
    "FullBatchDirection",
    "PrivacyAccountant",
]
