"""Transfer functions, one file for each family of ops; importing it registers all."""

from keras_dp_ext.verification.row_analysis.transfer import (  # noqa: F401
    batch_first,
    content_arithmetic,
    contents,
    contractions,
    control,
    crosses,
    elementwise,
    joins,
    lists,
    numbering,
    reductions,
    shapes,
    slices,
    text,
)
