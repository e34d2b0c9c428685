"""Audits: privacy measured from outside, by attacks, to catch false claims."""

from keras_dp_ext.audit.audit_fit import audit_fit
from keras_dp_ext.audit.audit_mechanism import audit_mechanism
from keras_dp_ext.audit.audit_training import audit_training
from keras_dp_ext.audit.canary_exposure import canary_exposure, log_perplexities
from keras_dp_ext.audit.membership_inference import (
    MembershipInference,
    membership_inference,
)
from keras_dp_ext.audit.plot import plot_audit, plot_roc
from keras_dp_ext.audit.results.fit_audit import FitAudit
from keras_dp_ext.audit.results.mechanism_audit import MechanismAudit
from keras_dp_ext.audit.results.training_audit import TrainingAudit
from keras_dp_ext.audit.roc import Roc
from keras_dp_ext.audit.shadow import Shadow, train_shadows
from keras_dp_ext.audit.worst_examples import worst_examples

__all__ = [
    "FitAudit",
    "MechanismAudit",
    "MembershipInference",
    "Roc",
    "Shadow",
    "TrainingAudit",
    "audit_fit",
    "audit_mechanism",
    "audit_training",
    "canary_exposure",
    "log_perplexities",
    "membership_inference",
    "plot_audit",
    "plot_roc",
    "train_shadows",
    "worst_examples",
]
