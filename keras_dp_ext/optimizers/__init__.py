"""Keras optimizers that train privately; see `make_private` for any other base."""

import keras as _keras

from keras_dp_ext._legacy_keras import refuse_legacy_keras as _refuse_legacy_keras
from keras_dp_ext.mechanisms import BLT as _BLT
from keras_dp_ext.mechanisms import DPFTRL as _DPFTRL
from keras_dp_ext.mechanisms import DPSGD as _DPSGD
from keras_dp_ext.mechanisms import AdaClip as _AdaClip
from keras_dp_ext.mechanisms import Automatic as _Automatic
from keras_dp_ext.mechanisms import BandInv as _BandInv
from keras_dp_ext.mechanisms import BandMF as _BandMF
from keras_dp_ext.mechanisms import Composed as _Composed
from keras_dp_ext.mechanisms import Directional as _Directional
from keras_dp_ext.mechanisms import Encoded as _Encoded
from keras_dp_ext.mechanisms import PerLayer as _PerLayer
from keras_dp_ext.mechanisms import Quantile as _Quantile
from keras_dp_ext.mechanisms import Tanh as _Tanh
from keras_dp_ext.optimizers.adam_bc import AdamBC
from keras_dp_ext.optimizers.make_private import make_private
from keras_dp_ext.optimizers.private_optimizer import PrivateOptimizer
from keras_dp_ext.optimizers.tanh_filtered_sgd import TanhFilteredSGD

_refuse_legacy_keras()

DPSGD = make_private(_keras.optimizers.SGD, _DPSGD)
DPAdam = make_private(_keras.optimizers.Adam, _DPSGD)
DPAdamBC = make_private(AdamBC, _DPSGD)
DPAdamW = make_private(_keras.optimizers.AdamW, _DPSGD)
DPAdagrad = make_private(_keras.optimizers.Adagrad, _DPSGD)
DPRMSprop = make_private(_keras.optimizers.RMSprop, _DPSGD)
QuantileSGD = make_private(_keras.optimizers.SGD, _Quantile)
QuantileAdam = make_private(_keras.optimizers.Adam, _Quantile)
PerLayerSGD = make_private(_keras.optimizers.SGD, _PerLayer)
PerLayerAdam = make_private(_keras.optimizers.Adam, _PerLayer)
AutomaticSGD = make_private(_keras.optimizers.SGD, _Automatic)
AutomaticAdam = make_private(_keras.optimizers.Adam, _Automatic)
AdaClipSGD = make_private(_keras.optimizers.SGD, _AdaClip)
AdaClipAdam = make_private(_keras.optimizers.Adam, _AdaClip)
EncodedSGD = make_private(_keras.optimizers.SGD, _Encoded)
EncodedAdam = make_private(_keras.optimizers.Adam, _Encoded)
TanhSGD = make_private(_keras.optimizers.SGD, _Tanh)
TanhAdam = make_private(_keras.optimizers.Adam, _Tanh)
DirectionalSGD = make_private(_keras.optimizers.SGD, _Directional)
DirectionalAdam = make_private(_keras.optimizers.Adam, _Directional)

BandMFSGD = make_private(_keras.optimizers.SGD, _BandMF)
BandMFAdam = make_private(_keras.optimizers.Adam, _BandMF)
DPFTRLSGD = make_private(_keras.optimizers.SGD, _DPFTRL)
BLTSGD = make_private(_keras.optimizers.SGD, _BLT)
BandInvSGD = make_private(_keras.optimizers.SGD, _BandInv)

# Known by name to `keras.saving`, so that saved models load by themselves.
for _name in ("Adadelta", "Adafactor", "Adamax", "Ftrl", "Lamb", "Lion", "Nadam"):
    if hasattr(_keras.optimizers, _name):
        make_private(getattr(_keras.optimizers, _name), _DPSGD)
        make_private(getattr(_keras.optimizers, _name), _Composed)
for _name in ("Adagrad", "Adam", "AdamW", "RMSprop", "SGD"):
    make_private(getattr(_keras.optimizers, _name), _Composed)
make_private(AdamBC, _Composed)

__all__ = [
    "BLTSGD",
    "DPFTRLSGD",
    "DPSGD",
    "AdaClipAdam",
    "AdaClipSGD",
    "AdamBC",
    "AutomaticAdam",
    "AutomaticSGD",
    "BandInvSGD",
    "BandMFAdam",
    "BandMFSGD",
    "DPAdagrad",
    "DPAdam",
    "DPAdamBC",
    "DPAdamW",
    "DPRMSprop",
    "DirectionalAdam",
    "DirectionalSGD",
    "EncodedAdam",
    "EncodedSGD",
    "PerLayerAdam",
    "PerLayerSGD",
    "PrivateOptimizer",
    "QuantileAdam",
    "QuantileSGD",
    "TanhAdam",
    "TanhFilteredSGD",
    "TanhSGD",
    "make_private",
]
