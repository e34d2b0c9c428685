"""Keras callbacks: the privacy accountant."""

from keras_dp_ext.callbacks.privacy_accountant import PrivacyAccountant

__all__ = ["PrivacyAccountant"]
