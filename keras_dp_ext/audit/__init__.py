"""Audits: privacy measured from outside, by attacks, to catch false claims."""

from keras_dp_ext.audit.audit_mechanism import audit_mechanism
from keras_dp_ext.audit.mechanism_audit import MechanismAudit

__all__ = ["MechanismAudit", "audit_mechanism"]
