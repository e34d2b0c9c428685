"""KerasHub's models of images, and of images with text, in tiny configurations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.third_party.case import (
    BATCH,
    Case,
    Training,
    cross_entropy,
    freeze_batch_statistics,
    labels,
    leave_out_dropout,
    numbers,
    tokens,
)

SIZE, WIDTH, VOCABULARY, LENGTH = 32, 32, 50, 12
_SOURCE = "KerasHub"
_IMAGE = (SIZE, SIZE, 3)
_FROZEN = "BatchNormalization frozen"


def _hub():
    import keras_hub

    return keras_hub.models


def _classifier(
    name: str, arguments: dict, rank: int | None = None, pooled=False, **further
):
    """The task for classes, or the mean over places and a `Dense` if there is none."""

    def build() -> Training:
        import keras

        hub = _hub()
        backbone = getattr(hub, f"{name}Backbone")(**arguments)
        if pooled:
            x = backbone.output
            axes = list(range(1, len(x.shape) - 1))
            outputs = keras.layers.Dense(5)(keras.ops.mean(x, axis=axes))
            model = keras.Model(backbone.input, outputs)
        else:
            task = getattr(hub, f"{name}ImageClassifier")
            model = task(backbone, num_classes=5, preprocessor=None, **further)
        leave_out_dropout(model)
        freeze_batch_statistics(model, numbers(*_IMAGE))
        if rank:
            backbone.enable_lora(rank)
        return Training(model, numbers(*_IMAGE), labels(5), cross_entropy())

    return build


def _segmenter(make: Callable, side: int) -> Callable:
    """A class for each place of the output."""

    def build() -> Training:
        import keras

        model = make()
        images = numbers(side, side, 3)
        leave_out_dropout(model)
        freeze_batch_statistics(model, images)
        places = labels(3, *model.output.shape[1:3])
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
        return Training(model, images, np.eye(3, dtype=np.float32)[places], loss)

    return build


def _segformer():
    hub = _hub()
    encoder = hub.MiTBackbone(**_MIT_PYRAMID)
    backbone = hub.SegFormerBackbone(image_encoder=encoder, projection_filters=16)
    return hub.SegFormerImageSegmenter(backbone, num_classes=3, preprocessor=None)


def _deeplab():
    hub = _hub()
    backbone = hub.DeepLabV3Backbone(
        image_encoder=hub.ResNetBackbone(**_RESNET),
        low_level_feature_key="P2",
        spatial_pyramid_pooling_key="P3",
        upsampling_size=2,
        dilation_rates=[1, 2],
        projection_filters=8,
        image_shape=_IMAGE,
    )
    return hub.DeepLabV3ImageSegmenter(backbone, num_classes=3, preprocessor=None)


def _pairs(make: Callable) -> Callable:
    """Images with texts: the entries of one example's own pair, and a `Dense`."""

    def build() -> Training:
        import keras

        backbone = make()
        vision, text = backbone.vision_encoder, backbone.text_encoder
        images = keras.Input(_IMAGE)
        words = keras.Input([LENGTH], dtype="int32")
        one = vision(images)
        other = text(words)
        mean = lambda x: keras.ops.mean(x, axis=1) if len(x.shape) == 3 else x  # noqa: E731
        joined = keras.ops.concatenate([mean(one), mean(other)], axis=-1)
        model = keras.Model([images, words], keras.layers.Dense(2)(joined))
        x = (numbers(*_IMAGE), tokens(VOCABULARY, LENGTH))
        return Training(model, x, labels(2), cross_entropy())

    return build


def _clip_like(name: str) -> Callable:
    def make():
        hub = _hub()
        vision_arguments = {
            "patch_size": 8,
            "hidden_dim": WIDTH,
            "num_layers": 2,
            "num_heads": 2,
            "intermediate_dim": 2 * WIDTH,
            "image_shape": _IMAGE,
        }
        text_arguments = {
            "vocabulary_size": VOCABULARY,
            "embedding_dim": WIDTH,
            "hidden_dim": WIDTH,
            "num_layers": 2,
            "num_heads": 2,
            "intermediate_dim": 2 * WIDTH,
            "max_sequence_length": LENGTH,
        }
        vision = getattr(hub, f"{name}VisionEncoder")(**vision_arguments)
        text = getattr(hub, f"{name}TextEncoder")(**text_arguments)
        further = {} if name == "SigLIP" else {"projection_dim": WIDTH}
        return getattr(hub, f"{name}Backbone")(vision, text, **further)

    return make


def _contrastive(name: str) -> Callable:
    """The task as it comes: every image is compared with every text of the batch."""

    def build() -> Training:
        import keras

        model = _clip_like(name)()
        x = {
            "images": numbers(*_IMAGE),
            "token_ids": tokens(VOCABULARY, LENGTH),
        }
        logits = model.output
        outputs = logits["vision_logits"] if isinstance(logits, dict) else logits
        model = keras.Model(model.input, outputs)
        y = np.arange(BATCH) % 4
        return Training(model, x, y, cross_entropy())

    return build


_VIT = {
    "image_shape": _IMAGE,
    "patch_size": 8,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": WIDTH,
    "mlp_dim": 2 * WIDTH,
}
_DEIT = {
    **{k: v for k, v in _VIT.items() if k != "mlp_dim"},
    "intermediate_dim": 2 * WIDTH,
}
_MIT = {
    "layerwise_depths": [1, 1],
    "num_layers": 2,
    "layerwise_num_heads": [1, 2],
    "layerwise_sr_ratios": [2, 1],
    "max_drop_path_rate": 0.0,
    "layerwise_patch_sizes": [7, 3],
    "layerwise_strides": [4, 2],
    "image_shape": _IMAGE,
    "hidden_dims": [16, 32],
}
_MIT_PYRAMID = {
    **_MIT,
    "layerwise_depths": [1, 1, 1, 1],
    "num_layers": 4,
    "layerwise_num_heads": [1, 1, 2, 2],
    "layerwise_sr_ratios": [4, 2, 1, 1],
    "layerwise_patch_sizes": [7, 3, 3, 3],
    "layerwise_strides": [4, 2, 2, 2],
    "image_shape": (64, 64, 3),
    "hidden_dims": [8, 16, 24, 32],
}
_EFFICIENT = {
    "stackwise_width_coefficients": [1.0] * 2,
    "stackwise_depth_coefficients": [1.0] * 2,
    "stackwise_kernel_sizes": [3, 5],
    "stackwise_num_repeats": [1, 2],
    "stackwise_input_filters": [16, 16],
    "stackwise_output_filters": [16, 24],
    "stackwise_expansion_ratios": [1, 4],
    "stackwise_strides": [1, 2],
    "stackwise_squeeze_and_excite_ratios": [0.25, 0.25],
    "stackwise_block_types": ["v1", "v1"],
    "stackwise_force_input_filters": [0, 0],
    "stackwise_nores_option": [False, False],
    "num_features": 32,
    "input_shape": _IMAGE,
}
_MOBILE = {
    "stackwise_expansion": [[16, 24], [32]],
    "stackwise_num_blocks": [2, 1],
    "stackwise_num_filters": [[8, 8], [16]],
    "stackwise_kernel_size": [[3, 3], [5]],
    "stackwise_num_strides": [[2, 1], [2]],
    "stackwise_se_ratio": [[None, None], [0.25]],
    "stackwise_activation": [["relu", "relu"], ["hard_swish"]],
    "stackwise_padding": [[1, 1], [2]],
    "output_num_filters": 32,
    "input_activation": "hard_swish",
    "output_activation": "hard_swish",
    "input_num_filters": 8,
    "image_shape": _IMAGE,
    "depthwise_filters": 8,
    "depthwise_stride": 2,
    "depthwise_residual": False,
    "squeeze_and_excite": 0.5,
    "last_layer_filter": 32,
}
_HGNET = {
    "depths": [1, 1],
    "embedding_size": 8,
    "hidden_sizes": [16, 16],
    "stem_channels": [3, 8, 8],
    "hidden_act": "relu",
    "use_learnable_affine_block": True,
    "stackwise_stage_filters": [(8, 8, 16, 1, 1, 3), (16, 8, 16, 1, 1, 3)],
    "apply_downsample": [False, True],
    "use_lightweight_conv_block": [False, True],
    "image_shape": _IMAGE,
}
_DINO2 = {
    "patch_size": 8,
    "num_layers": 2,
    "hidden_dim": WIDTH,
    "num_heads": 2,
    "intermediate_dim": 2 * WIDTH,
    "image_shape": _IMAGE,
    "position_embedding_shape": _IMAGE,
}
_DINO3 = {k: v for k, v in _DINO2.items() if k != "position_embedding_shape"}
_RESNET = {
    "input_conv_filters": [64],
    "input_conv_kernel_sizes": [7],
    "stackwise_num_filters": [64, 64],
    "stackwise_num_blocks": [1, 1],
    "stackwise_num_strides": [1, 2],
    "block_type": "basic_block",
    "image_shape": _IMAGE,
}
_SWIN = {
    "image_shape": _IMAGE,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 2],
    "window_size": 4,
    "patch_size": 2,
    "drop_path": 0.0,
}
_VGG = {
    "stackwise_num_repeats": [2, 2],
    "stackwise_num_filters": [16, 32],
    "image_shape": _IMAGE,
}
_XCEPTION = {
    "stackwise_conv_filters": [[16, 32], [64, 64]],
    "stackwise_pooling": [True, False],
    "image_shape": _IMAGE,
}
_DENSENET = {
    "stackwise_num_repeats": [2, 2],
    "compression_ratio": 0.5,
    "growth_rate": 8,
    "image_shape": _IMAGE,
}
_CSP = {
    "stem_filters": 16,
    "stem_kernel_size": 3,
    "stem_strides": 1,
    "stackwise_depth": [1, 1],
    "stackwise_strides": [2, 2],
    "stackwise_num_filters": [16, 32],
    "block_type": "dark_block",
    "stage_type": "dark",
    "image_shape": _IMAGE,
}
_VITDET = {
    "hidden_size": WIDTH,
    "num_layers": 2,
    "intermediate_dim": 2 * WIDTH,
    "num_heads": 2,
    "global_attention_layer_indices": [1],
    "image_shape": _IMAGE,
    "patch_size": 8,
    "num_output_channels": 16,
    "window_size": 2,
}


def _case(name: str, build: Callable, remark: str = "") -> Case:
    return Case(name, _SOURCE, build, remark)


CASES = [
    _case("ViTImageClassifier", _classifier("ViT", _VIT)),
    _case("ViTImageClassifier, LoRA", _classifier("ViT", _VIT, 4), "rank 4"),
    _case("DeiTImageClassifier", _classifier("DeiT", _DEIT)),
    _case("DINOV2Backbone", _classifier("DINOV2", _DINO2, pooled=True)),
    _case("DINOV3Backbone", _classifier("DINOV3", _DINO3, pooled=True)),
    _case("SwinTransformerImageClassifier", _classifier("SwinTransformer", _SWIN)),
    _case("MiTImageClassifier", _classifier("MiT", _MIT), _FROZEN),
    _case("SegFormerImageSegmenter", _segmenter(_segformer, 64), _FROZEN),
    _case("DeepLabV3ImageSegmenter", _segmenter(_deeplab, SIZE), _FROZEN),
    _case(
        "EfficientNetImageClassifier", _classifier("EfficientNet", _EFFICIENT), _FROZEN
    ),
    _case("MobileNetImageClassifier", _classifier("MobileNet", _MOBILE), _FROZEN),
    _case("HGNetV2Backbone", _classifier("HGNetV2", _HGNET, pooled=True), _FROZEN),
    _case("XceptionImageClassifier", _classifier("Xception", _XCEPTION), _FROZEN),
    _case("DeiTImageClassifier, LoRA", _classifier("DeiT", _DEIT, 4), "rank 4"),
    _case("ViTDetBackbone", _classifier("ViTDet", _VITDET, pooled=True)),
    _case("VGGImageClassifier", _classifier("VGG", _VGG, pooling_hidden_dim=64)),
    _case("ResNetImageClassifier", _classifier("ResNet", _RESNET), _FROZEN),
    _case("DenseNetImageClassifier", _classifier("DenseNet", _DENSENET), _FROZEN),
    _case("CSPNetImageClassifier", _classifier("CSPNet", _CSP), _FROZEN),
    _case("CLIP's encoders", _pairs(_clip_like("CLIP")), "a head on pairs"),
    _case("SigLIP's encoders", _pairs(_clip_like("SigLIP")), "a head on pairs"),
    _case(
        "CLIPBackbone, contrastive", _contrastive("CLIP"), "compares the whole batch"
    ),
]
