"""The forms in which one op can hold the per-example gradients of its weight."""

from keras_dp_ext.gradients.contributions.base import Contribution, Rows, RowwiseMap
from keras_dp_ext.gradients.contributions.lookups import Lookups
from keras_dp_ext.gradients.contributions.mapped import Mapped
from keras_dp_ext.gradients.contributions.outer_products import OuterProducts
from keras_dp_ext.gradients.contributions.total import Total, total

__all__ = [
    "Contribution",
    "Lookups",
    "Mapped",
    "OuterProducts",
    "Rows",
    "RowwiseMap",
    "Total",
    "total",
]
