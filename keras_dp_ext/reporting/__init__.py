"""A privacy report that can be handed on: one page, with nothing to load."""

from keras_dp_ext.reporting.record import Record
from keras_dp_ext.reporting.report import report

__all__ = ["Record", "report"]
