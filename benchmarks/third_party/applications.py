"""keras.applications, with small images: batch statistics frozen or replaced."""

from __future__ import annotations

from benchmarks.third_party.case import (
    Case,
    Training,
    cross_entropy,
    freeze_batch_statistics,
    labels,
    leave_out_dropout,
    numbers,
)

# By name: the size of the smallest image that the model takes, or a little more.
_SIZES = {
    "VGG16": 32,
    "VGG19": 32,
    "ResNet50": 32,
    "ResNet50V2": 32,
    "ResNet101": 32,
    "MobileNet": 32,
    "MobileNetV2": 32,
    "MobileNetV3Small": 32,
    "MobileNetV3Large": 32,
    "EfficientNetB0": 32,
    "EfficientNetB1": 32,
    "EfficientNetV2B0": 32,
    "DenseNet121": 32,
    "DenseNet169": 32,
    "NASNetMobile": 32,
    "Xception": 71,
    "InceptionV3": 75,
    "InceptionResNetV2": 75,
    "ConvNeXtTiny": 32,
}
_WITHOUT_BATCH_STATISTICS = ("VGG16", "VGG19", "ConvNeXtTiny")


def _application(name: str, size: int, **arguments):
    import keras

    return getattr(keras.applications, name)(
        weights=None,
        input_shape=(size, size, 3),
        classes=10,
        classifier_activation=None,
        **arguments,
    )


def _training(model, size: int) -> Training:
    return Training(model, numbers(size, size, 3), labels(10), cross_entropy())


def _frozen(name: str, size: int):
    def build() -> Training:
        model = _application(name, size)
        leave_out_dropout(model)
        freeze_batch_statistics(model, numbers(size, size, 3))
        return _training(model, size)

    return build


def _replaced(name: str, size: int):
    def build() -> Training:
        from keras_dp_ext import make_compatible

        model = make_compatible(_application(name, size), verbose=False)
        leave_out_dropout(model)
        return _training(model, size)

    return build


def _head_only(name: str, size: int):
    def build() -> Training:
        import keras

        base = getattr(keras.applications, name)(
            weights=None, input_shape=(size, size, 3), include_top=False, pooling="avg"
        )
        base.trainable = False
        return _training(keras.Sequential([base, keras.layers.Dense(10)]), size)

    return build


def _case(name: str) -> Case:
    remark = "" if name in _WITHOUT_BATCH_STATISTICS else "BatchNormalization frozen"
    return Case(name, "keras.applications", _frozen(name, _SIZES[name]), remark)


CASES = [
    *map(_case, _SIZES),
    Case(
        "ResNet50, group normalisation",
        "keras.applications",
        _replaced("ResNet50", 32),
        "`make_compatible`",
    ),
    Case(
        "MobileNetV2, group normalisation",
        "keras.applications",
        _replaced("MobileNetV2", 32),
        "`make_compatible`",
    ),
    Case(
        "EfficientNetB0, head only",
        "keras.applications",
        _head_only("EfficientNetB0", 32),
        "base frozen",
    ),
]
