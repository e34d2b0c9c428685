"""A proof, read off the graph, that the examples of a batch do not mix.

Abstract interpretation, one pass over the ops of the forward graph in order. Every
tensor is a constant (no data reach it), has rows (examples lie along one axis, and each
entry depends on its own example only), or is mixed. If every loss depends on one example
by itself, mixing is impossible for *all* inputs, also for those that no test tries.
"""

from keras_dp_ext.verification.row_analysis.analyse import (
    analyse,
    analyse_functions,
    values_of_tensors,
)
from keras_dp_ext.verification.row_analysis.findings import Finding, Verdict

__all__ = ["Finding", "Verdict", "analyse", "analyse_functions", "values_of_tensors"]
