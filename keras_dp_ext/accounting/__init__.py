"""Accounting: what was released (events), how often (ledger), what it costs."""

from keras_dp_ext.accounting.accountants import epsilon_pld, epsilon_rdp
from keras_dp_ext.accounting.best_attack import BestAttack, best_attack
from keras_dp_ext.accounting.budget import calibrate, epsilon
from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.conversion import epsilon_from_rdp
from keras_dp_ext.accounting.events import (
    CodebookRelease,
    ComposedRelease,
    CorrelatedRelease,
    Event,
    FullBatchRelease,
    GaussianRelease,
    NoiseRelease,
    ScheduledRelease,
)
from keras_dp_ext.accounting.group import group_epsilon
from keras_dp_ext.accounting.ledger import Ledger
from keras_dp_ext.accounting.moments import MomentError
from keras_dp_ext.accounting.of_model import epsilon_of
from keras_dp_ext.accounting.profile import Profile
from keras_dp_ext.accounting.rdp import rdp_per_release
from keras_dp_ext.accounting.records import OneOff, Segment
from keras_dp_ext.accounting.sampling import (
    BallsInBins,
    CyclicPoisson,
    FixedOrder,
    FullBatch,
    Poisson,
    Sampling,
    Shuffled,
    Unknown,
    WithReplacement,
)
from keras_dp_ext.accounting.training_plan import TrainingPlan
from keras_dp_ext.accounting.tuning import draw_runs, tuning_epsilon

__all__ = [
    "BallsInBins",
    "BestAttack",
    "Claim",
    "CodebookRelease",
    "ComposedRelease",
    "CorrelatedRelease",
    "CyclicPoisson",
    "Event",
    "FixedOrder",
    "FullBatch",
    "FullBatchRelease",
    "GaussianRelease",
    "Ledger",
    "MomentError",
    "NoiseRelease",
    "OneOff",
    "Poisson",
    "Profile",
    "Sampling",
    "ScheduledRelease",
    "Segment",
    "Shuffled",
    "TrainingPlan",
    "Unknown",
    "WithReplacement",
    "best_attack",
    "calibrate",
    "draw_runs",
    "epsilon",
    "epsilon_from_rdp",
    "epsilon_of",
    "epsilon_pld",
    "epsilon_rdp",
    "group_epsilon",
    "rdp_per_release",
    "tuning_epsilon",
]
