"""Convolutional networks that people train, on images of 32 pixels.

All layers train but BatchNormalization, whose statistics mix examples: it is frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.workloads import WORKLOADS, Workload

_SHAPE, _CLASSES, _BATCH = (32, 32, 3), 10, 64

# By name in tables: that of `keras.applications`.
_APPLICATIONS = {
    "vgg16": "VGG16",
    "resnet50": "ResNet50",
    "mobilenet-v2": "MobileNetV2",
    "mobilenet-v3": "MobileNetV3Small",
    "efficientnet-b0": "EfficientNetB0",
    "convnext-tiny": "ConvNeXtTiny",
}


def _application(name: str) -> Callable[[Any], Any]:
    def build(keras: Any) -> Any:
        model = getattr(keras.applications, name)(
            weights=None,
            input_shape=_SHAPE,
            classes=_CLASSES,
            classifier_activation=None,
        )
        for layer in model._flatten_layers():
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.trainable = False
        return model

    return build


def _resnet18(keras: Any) -> Any:
    from benchmarks.models import resnet18

    return resnet18()


NETWORKS = {
    **{
        name: Workload(
            application,
            _BATCH,
            _SHAPE,
            _CLASSES,
            _application(application),
            None,
            False,
        )
        for name, application in _APPLICATIONS.items()
    },
    "resnet18": Workload(
        "ResNet-18 with GroupNormalization",
        _BATCH,
        _SHAPE,
        _CLASSES,
        _resnet18,
        sequential=False,
    ),
}

# All models of the benchmarks by name; W6 is the WideResNet-16-4.
ALL_MODELS = {**WORKLOADS, **NETWORKS}
