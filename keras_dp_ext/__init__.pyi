"""The names that load on first use, for editors and type checkers."""

from keras_dp_ext import accounting as accounting
from keras_dp_ext import analysis as analysis
from keras_dp_ext import audit as audit
from keras_dp_ext import bounding as bounding
from keras_dp_ext import callbacks as callbacks
from keras_dp_ext import data as data
from keras_dp_ext import gradients as gradients
from keras_dp_ext import mechanisms as mechanisms
from keras_dp_ext import models as models
from keras_dp_ext import noise as noise
from keras_dp_ext import optimizers as optimizers
from keras_dp_ext import refining as refining
from keras_dp_ext import reporting as reporting
from keras_dp_ext import tf_privacy as tf_privacy
from keras_dp_ext.callbacks import PrivacyAccountant as PrivacyAccountant
from keras_dp_ext.data import poisson_batches as poisson_batches
from keras_dp_ext.models import make_compatible as make_compatible
from keras_dp_ext.optimizers import DPSGD as DPSGD
from keras_dp_ext.optimizers import DirectionalAdam as DirectionalAdam
from keras_dp_ext.optimizers import DirectionalSGD as DirectionalSGD
from keras_dp_ext.optimizers import DPAdagrad as DPAdagrad
from keras_dp_ext.optimizers import DPAdam as DPAdam
from keras_dp_ext.optimizers import DPAdamW as DPAdamW
from keras_dp_ext.optimizers import DPRMSprop as DPRMSprop
from keras_dp_ext.optimizers import EncodedAdam as EncodedAdam
from keras_dp_ext.optimizers import EncodedSGD as EncodedSGD
from keras_dp_ext.optimizers import TanhAdam as TanhAdam
from keras_dp_ext.optimizers import TanhSGD as TanhSGD
from keras_dp_ext.optimizers import make_private as make_private
from keras_dp_ext.reporting import report as report

__version__: str
