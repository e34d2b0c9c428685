"""keras_dp_ext: differentially private training for Keras 3 on TensorFlow.

Change the optimizer, add a callback, read epsilon in the progress bar:

>>> import keras_dp_ext as dp
>>> dp.noise.StudentT(df=9, scale=1.0).fisher_information  # doctest: +ELLIPSIS
0.8333...

Subpackages load on first use, so that everything that needs no TensorFlow
(`accounting`, `noise`, the command line) starts in a fraction of a second.
"""

from __future__ import annotations

import importlib
from typing import Any

from keras_dp_ext import _registration

__version__ = "0.1.0"

_SUBPACKAGES = (
    "accounting",
    "analysis",
    "audit",
    "bounding",
    "callbacks",
    "data",
    "gradients",
    "mechanisms",
    "models",
    "noise",
    "optimizers",
    "refining",
    "reporting",
    "tf_privacy",
)

# What a first training needs, without the name of its subpackage. Editors read these
# names in `__init__.pyi`.
_AT_THE_TOP = {
    "PrivacyAccountant": "callbacks",
    "make_compatible": "models",
    "make_private": "optimizers",
    "poisson_batches": "data",
    "report": "reporting",
    **dict.fromkeys(
        (
            "DPAdagrad",
            "DPAdam",
            "DPAdamW",
            "DPRMSprop",
            "DPSGD",
            "DirectionalAdam",
            "DirectionalSGD",
            "EncodedAdam",
            "EncodedSGD",
            "TanhAdam",
            "TanhSGD",
        ),
        "optimizers",
    ),
}

__all__ = [*_SUBPACKAGES, *_AT_THE_TOP, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _AT_THE_TOP:
        return getattr(importlib.import_module(f"{__name__}.{_AT_THE_TOP[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


_registration.register_on_import()
