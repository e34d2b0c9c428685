"""KerasHub's models of text, in tiny configurations, with and without LoRA."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.third_party.case import (
    BATCH,
    Case,
    Training,
    cross_entropy,
    labels,
    numbers,
    tokens,
)

VOCABULARY, LENGTH, WIDTH = 100, 24, 32
_SOURCE = "KerasHub"
_RANK = 4

# Encoders and decoders that name their arguments alike.
_BASE = {
    "vocabulary_size": VOCABULARY,
    "num_layers": 2,
    "hidden_dim": WIDTH,
    "intermediate_dim": 2 * WIDTH,
}
_HEADS = {**_BASE, "num_heads": 2}
_ENCODER = {**_HEADS, "dropout": 0.0, "max_sequence_length": LENGTH}
_GROUPED = {**_BASE, "num_query_heads": 4, "num_key_value_heads": 2}
_T5GEMMA = {
    "vocabulary_size": VOCABULARY,
    **{
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {
            "hidden_dim": WIDTH,
            "intermediate_dim": 2 * WIDTH,
            "num_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "layer_types": ["full_attention"],
        }.items()
    },
}


def _hub():
    import keras_hub

    return keras_hub.models


def _inputs(names: list[str]) -> dict[str, np.ndarray]:
    """Made-up tokens, masks and segments, by the names of a model's inputs."""
    found = {}
    for name in names:
        if "padding_mask" in name:
            is_sound = (
                name == "encoder_padding_mask" and "encoder_input_values" in names
            )
            found[name] = np.ones([BATCH, 1000 if is_sound else LENGTH], np.int32)
        elif "segment" in name:
            found[name] = np.zeros([BATCH, LENGTH], np.int32)
        elif "positions" in name:
            found[name] = np.tile(np.arange(3, dtype=np.int32), [BATCH, 1])
        elif "token_ids" in name:
            found[name] = tokens(VOCABULARY, LENGTH)
        elif "features" in name:
            found[name] = numbers(2 * LENGTH, 80)
        elif "input_values" in name:
            found[name] = numbers(1000, 1)
        else:
            raise KeyError(name)
    return found


def _names(model) -> list[str]:
    return list(model.input) if isinstance(model.input, dict) else [model.input.name]


def _with_lora(backbone, rank: int | None):
    if rank:
        backbone.enable_lora(rank)
    return backbone


def _classifier(name: str, arguments: dict, rank: int | None = None):
    def build() -> Training:
        hub = _hub()
        backbone = _with_lora(getattr(hub, f"{name}Backbone")(**arguments), rank)
        head = getattr(hub, f"{name}TextClassifier")
        model = head(backbone, num_classes=3, preprocessor=None, dropout=0.0)
        return Training(model, _inputs(_names(model)), labels(3), cross_entropy())

    return build


def _padded(name: str, arguments: dict):
    """Texts of different lengths: what is behind their end is masked."""
    build_whole = _classifier(name, arguments)

    def build() -> Training:
        training = build_whole()
        mask = np.arange(LENGTH) < (4 + np.arange(BATCH) % 8)[:, None]
        training.x["padding_mask"] = mask.astype(np.int32)
        training.x["token_ids"] *= mask
        return training

    return build


def _pooled(name: str, arguments: dict, output: str | None = None):
    """A backbone without a task of its own: its mean over time, and a `Dense`."""

    def build() -> Training:
        import keras

        backbone = getattr(_hub(), f"{name}Backbone")(**arguments)
        outputs = backbone.output
        if isinstance(outputs, dict):
            outputs = outputs[output or "sequence_output"]
        pooled = keras.ops.mean(outputs, axis=1)
        model = keras.Model(backbone.input, keras.layers.Dense(3)(pooled))
        return Training(model, _inputs(_names(backbone)), labels(3), cross_entropy())

    return build


def _masked_lm(name: str, arguments: dict):
    def build() -> Training:
        hub = _hub()
        backbone = getattr(hub, f"{name}Backbone")(**arguments)
        model = getattr(hub, f"{name}MaskedLM")(backbone, preprocessor=None)
        y = labels(VOCABULARY, 3)
        return Training(model, _inputs(_names(model)), y, cross_entropy("sum"))

    return build


def _causal_lm(
    name: str,
    arguments: dict,
    rank: int | None = None,
    quantization: str | None = None,
    dtype: str | None = None,
):
    def build() -> Training:
        hub = _hub()
        backbone = getattr(hub, f"{name}Backbone")(
            **arguments, **({"dtype": dtype} if dtype else {})
        )
        model = getattr(hub, f"{name}CausalLM")(backbone=backbone, preprocessor=None)
        if quantization:
            model.quantize(quantization)
        _with_lora(backbone, rank)
        y = labels(VOCABULARY, LENGTH)
        return Training(model, _inputs(_names(model)), y, cross_entropy("sum"))

    return build


def _seq2seq(name: str, arguments: dict, rank: int | None = None):
    def build() -> Training:
        hub = _hub()
        backbone = _with_lora(getattr(hub, f"{name}Backbone")(**arguments), rank)
        model = getattr(hub, f"{name}Seq2SeqLM")(backbone, preprocessor=None)
        y = labels(VOCABULARY, LENGTH)
        return Training(model, _inputs(_names(model)), y, cross_entropy("sum"))

    return build


def _case(name: str, build: Callable, remark: str = "") -> Case:
    return Case(name, _SOURCE, build, remark)


_ALBERT = {
    **_ENCODER,
    "embedding_dim": 16,
    "num_groups": 1,
    "num_inner_repetitions": 1,
}
_DEBERTA = {**_ENCODER, "bucket_size": 8}
_FNET = {key: value for key, value in _ENCODER.items() if key != "num_heads"}
_ROFORMER = {**_HEADS, "head_size": 16, "dropout": 0.0}
_CLASSIFIERS = {
    "Bert": _ENCODER,
    "Albert": _ALBERT,
    "Roberta": _ENCODER,
    "DistilBert": _ENCODER,
    "DebertaV3": _DEBERTA,
    "FNet": _FNET,
    "XLMRoberta": _ENCODER,
    "RoformerV2": _ROFORMER,
}
_MASKED = ("Bert", "Albert", "Roberta", "DistilBert", "DebertaV3", "FNet")
_GEMMA = {**_GROUPED, "head_dim": 8}
_CAUSAL = {
    "GPT2": _ENCODER,
    "OPT": _ENCODER,
    "Bloom": _HEADS,
    "GPTNeoX": {**_HEADS, "max_sequence_length": LENGTH},
    "Falcon": {**_BASE, "num_attention_heads": 2},
    "Gemma": _GEMMA,
    "Gemma3": {**_GEMMA, "image_size": 16, "vision_encoder": None},
    "Llama": _GROUPED,
    "Llama3": _GROUPED,
    "Mistral": _GROUPED,
    "Phi3": _GROUPED,
    "Qwen": _GROUPED,
    "Qwen3": _GEMMA,
    "SmolLM3": {
        **_BASE,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rope_layer_enabled_list": [True, True],
        "layer_types": ["full_attention", "full_attention"],
        "mlp_bias": False,
        "layer_norm_epsilon": 1e-5,
        "max_position_embeddings": LENGTH,
        "rope_theta": 10000,
        "partial_rotary_factor": 1.0,
    },
    "RWKV7": {
        "hidden_size": WIDTH,
        "head_size": 8,
        "num_layers": 2,
        "vocabulary_size": VOCABULARY,
        "intermediate_dim": 2 * WIDTH,
        "gate_lora": 8,
        "mv_lora": 4,
        "aaa_lora": 4,
        "decay_lora": 4,
    },
}
_QWEN35 = {
    **_GEMMA,
    "layer_types": ["linear_attention", "full_attention"],
    "partial_rotary_factor": 0.5,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
_MOONSHINE = {
    "vocabulary_size": VOCABULARY,
    "filter_dim": WIDTH,
    "encoder_num_layers": 1,
    "decoder_num_layers": 1,
    "hidden_dim": WIDTH,
    "intermediate_dim": 2 * WIDTH,
    "encoder_num_heads": 2,
    "decoder_num_heads": 2,
}
_WITH_LORA = ("GPT2", "OPT", "Bloom", "Gemma", "Gemma3", "Llama3", "Mistral", "Qwen3")
_EXPERTS = {"num_experts": 4, "top_k": 2}
_MIXTURES = {
    "Mixtral": {**_GROUPED, **_EXPERTS, "router_aux_loss_coef": 0.0},
    "QwenMoe": {
        **_GROUPED,
        **_EXPERTS,
        "moe_intermediate_dim": 2 * WIDTH,
        "shared_expert_intermediate_dim": 2 * WIDTH,
        "router_aux_loss_coefficient": 0.0,
    },
    "Qwen3Moe": {
        **_GEMMA,
        **_EXPERTS,
        "moe_intermediate_dim": 2 * WIDTH,
        "router_aux_loss_coefficient": 0.0,
    },
    "GptOss": {**_GROUPED, **_EXPERTS},
}

CASES = [
    *(
        _case(f"{name}TextClassifier", _classifier(name, arguments))
        for name, arguments in _CLASSIFIERS.items()
    ),
    *(
        _case(
            f"{name}TextClassifier, LoRA",
            _classifier(name, _CLASSIFIERS[name], _RANK),
            "rank 4",
        )
        for name in (
            "Bert",
            "Albert",
            "Roberta",
            "DistilBert",
            "DebertaV3",
            "XLMRoberta",
        )
    ),
    _case(
        "ElectraBackbone",
        _pooled(
            "Electra",
            {
                **{k: v for k, v in _ENCODER.items() if k != "vocabulary_size"},
                "vocab_size": VOCABULARY,
                "embedding_dim": 16,
            },
        ),
    ),
    _case("BertTextClassifier, padded", _padded("Bert", _ENCODER), "different lengths"),
    _case(
        "RobertaTextClassifier, padded",
        _padded("Roberta", _ENCODER),
        "different lengths",
    ),
    _case("ESM2Backbone", _pooled("ESM2", _ENCODER)),
    _case(
        "XLNetBackbone",
        _pooled("XLNet", _HEADS),
        "reshapes its mask to [time, batch]: examples get each other's",
    ),
    *(
        _case(
            f"{name}MaskedLM", _masked_lm(name, _CLASSIFIERS[name]), 'reduction="sum"'
        )
        for name in _MASKED
    ),
    *(
        _case(f"{name}CausalLM", _causal_lm(name, arguments), 'reduction="sum"')
        for name, arguments in _CAUSAL.items()
    ),
    *(
        _case(
            f"{name}CausalLM, LoRA",
            _causal_lm(name, _CAUSAL[name], _RANK),
            'rank 4, reduction="sum"',
        )
        for name in _WITH_LORA
    ),
    *(
        _case(
            f"{name}CausalLM, int8, LoRA",
            _causal_lm(name, _CAUSAL[name], _RANK, "int8"),
            'rank 4, reduction="sum"',
        )
        for name in ("GPT2", "Gemma", "Llama3")
    ),
    _case(
        "Llama3CausalLM, bfloat16, LoRA",
        _causal_lm("Llama3", _CAUSAL["Llama3"], _RANK, dtype="mixed_bfloat16"),
        'rank 4, reduction="sum"',
    ),
    *(
        _case(
            f"{name}CausalLM",
            _causal_lm(name, arguments),
            'no auxiliary loss, reduction="sum"',
        )
        for name, arguments in _MIXTURES.items()
    ),
    _case("BartSeq2SeqLM", _seq2seq("Bart", _ENCODER), 'reduction="sum"'),
    _case(
        "BartSeq2SeqLM, LoRA",
        _seq2seq("Bart", _ENCODER, _RANK),
        'rank 4, reduction="sum"',
    ),
    _case(
        "T5Backbone",
        _pooled("T5", {**_HEADS, "dropout": 0.0}, "decoder_sequence_output"),
    ),
    _case("T5GemmaSeq2SeqLM", _seq2seq("T5Gemma", _T5GEMMA), 'reduction="sum"'),
    _case(
        "WhisperBackbone",
        _pooled(
            "Whisper",
            {
                **_HEADS,
                "max_encoder_sequence_length": 2 * LENGTH,
                "max_decoder_sequence_length": LENGTH,
            },
            "decoder_sequence_output",
        ),
    ),
    _case("Qwen3_5CausalLM", _causal_lm("Qwen3_5", _QWEN35), 'reduction="sum"'),
    _case(
        "MoonshineBackbone",
        _pooled("Moonshine", _MOONSHINE, "decoder_sequence_output"),
    ),
    _case(
        "FalconCausalLM, LoRA",
        _causal_lm("Falcon", _CAUSAL["Falcon"], _RANK),
        'rank 4, reduction="sum"',
    ),
    _case(
        "Phi3CausalLM, LoRA",
        _causal_lm("Phi3", _CAUSAL["Phi3"], _RANK),
        'rank 4, reduction="sum"',
    ),
    _case(
        "MixtralCausalLM, LoRA",
        _causal_lm("Mixtral", _MIXTURES["Mixtral"], _RANK),
        'rank 4, no auxiliary loss, reduction="sum"',
    ),
]
