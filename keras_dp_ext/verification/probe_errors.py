"""What the probe says about a model that cannot be trained privately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.graph.ops import variable_name as name

_BY_ITSELF = (
    "compute it for each example by itself, e.g. `tf.reduce_mean(x, axis=-1)`, "
    "`tf.where(condition_per_example, a, b)`, `tf.clip_by_norm(dy, c, axes=[-1])`, or "
    "leave the layer out. Values that are not finite need no care: an example with "
    "such a gradient counts as zero."
)

_NO_EQUALIZATION = (
    "Keras' Equalization, and RandAugment with it, counts the colours of the whole "
    "batch. Use layers that treat each image by itself, such as RandomFlip, "
    "RandomTranslation, RandomContrast and RandomBrightness"
)

# What helps against layers and functions of others that mix, by a part of the op's name.
_REMEDIES = {
    "mel_spectrogram": (
        "Keras' MelSpectrogram cuts off at `top_db` below the loudest value of the whole "
        "batch. Pass `power_to_db=False`, and write "
        "`x = 10 * ops.log10(ops.maximum(x, 1e-10))` behind it"
    ),
    "attn_mask_layer": (
        "KerasHub's XLNet reshapes `padding_mask` to [time, batch] where it should "
        "transpose it, so that examples get each other's masks. Call the backbone with "
        "`padding_mask=keras.ops.ones_like(token_ids)`, or take another one"
    ),
    "rand_augment": _NO_EQUALIZATION,
    "equalization": _NO_EQUALIZATION,
    "elastic_transform": (
        "Keras' RandomElasticTransform takes the first image for all where the batch "
        "size is unknown, and images by number otherwise. Leave it out, or use "
        "RandomPerspective or RandomShear"
    ),
    "hinge/all": (
        "Keras' Hinge and SquaredHinge ask whether all labels of the batch are 0 or 1. "
        "Pass labels of -1 and 1, and a loss of your own: "
        "`lambda y, p: ops.mean(ops.maximum(1 - y * p, 0), axis=-1)`"
    ),
    "matrix_exponential": (
        "`tf.linalg.expm` looks at the largest matrix of the batch, and one that is not "
        "finite spoils all others. Square a fixed number of times instead: `y = x / 64; "
        "y = ops.eye(n) + y + y @ y / 2 + y @ y @ y / 6`, then six times `y = y @ y`"
    ),
    "clip_by_global_norm": (
        "clip each example by itself: `tf.clip_by_norm(x, c, axes=[-1])`, with all axes "
        "but the first one"
    ),
    "sparse_moe_block": (
        "KerasHub's mixtures of experts have an auxiliary loss that is averaged over the "
        "batch. Turn it off where the backbone is made: `router_aux_loss_coefficient=0.0`"
        ", or `router_aux_loss_coef=0.0` in Mixtral. `Backbone.from_preset` takes it, too"
    ),
    "map/while": (
        "`tf.map_fn` and `ops.map` take the examples out of the batch one by one. Call "
        "the function on the whole batch, or with `ops.vectorized_map`"
    ),
}

# Products of examples with each other: the similarities that a contrastive loss compares.
_PRODUCTS = ("BatchMatMulV2", "BatchMatMulV3", "Einsum", "MatMul")
_COMPARES = (
    "a loss that compares the examples of a batch with each other (contrastive, "
    "negatives from the batch) has no gradient per example. Let each row of the data "
    "bring its own pair, triplet or negatives, and compare these only; or compare with "
    "public anchors, or with other views of the same example"
)

_OVERLAP = (
    "Keras' Dice and Tversky add up the whole batch unless they are told the axes of an "
    "example: pass `axis=(1, 2, 3)` for images, `axis=(1,)` for vectors"
)
_ONE_NUMBER = (
    "one number for the whole batch is multiplied by one of each row. If the loss "
    "function returns a mean over all, Keras does that with the weights of the rows: "
    "let it return one number for each example, `ops.mean(..., axis=-1)` in place of "
    "`ops.mean(...)`, or `ops.sum(losses * mask, axis=-1) / ops.maximum(ops.sum(mask, "
    "axis=-1), 1)`. If it weighs by a statistic of the batch, take a public constant"
)

_SEEDS = "Use `keras.random` with a `keras.random.SeedGenerator`"


def no_usable_inputs_error(sources: Sequence[tf.Tensor]) -> ValueError:
    return ValueError(
        "The model refuses made-up inputs, or gives losses or gradients for them "
        "that are not finite, so it cannot be verified that it treats every example "
        "by itself. Tried: floats around 0 and between 0 and 1, integers from 0 and "
        f"from 1, words of the model's vocabularies{_lengths(sources)}. What to do: "
        "rescale inputs and targets inside the data pipeline instead of the model or "
        "the loss, and count classes from 0"
        f"{_static(sources)}. Received inputs: {[source.shape for source in sources]}"
    )


def _unknown_axes(sources: Sequence[tf.Tensor]) -> bool:
    return any(None in source.shape[1:].as_list() for source in sources)


def _lengths(sources: Sequence[tf.Tensor]) -> str:
    return ", lengths from 3 to 224" if _unknown_axes(sources) else ""


def _static(sources: Sequence[tf.Tensor]) -> str:
    if not _unknown_axes(sources):
        return ""
    return (
        ", and give every axis but the batch a static size, e.g. "
        "`keras.Input([224, 224, 3])` and a pipeline of arrays of that size"
    )


def mixing_error(
    what: str, op: tf.Operation | None, variables: Sequence[Any], finding: Any = None
) -> ValueError:
    """For a model that was seen to mix.

    Args:
        what: What of one example depends on others.
        op: Where in the forward pass it was seen, if at an op.
        variables: The trained variables.
        finding: What reading the graph has found, if it was not seen at an op.
    """
    where, remedy = "the loss", _remedy(op)
    if op is not None:
        where = f"op `{op.name}` ({op.type})"
    elif finding is not None:
        where, remedy = str(finding).rstrip("."), _known_remedy(finding.path)
        remedy = remedy or _BY_ITSELF
    return ValueError(
        f"The model mixes the examples of a batch: {what} of one example "
        f"depends on the other examples. First seen at {where}. Such a model "
        "has no bounded sensitivity and cannot be trained privately. Nothing was "
        f"trained. What to do: {remedy} "
        f"(variables: {', '.join(map(name, variables[:3]))}, ...)."
    )


def _remedy(op: tf.Operation | None) -> str:
    """What helps depends on what mixes."""
    if op is None:
        return (
            "divide by nothing that is counted or summed over the batch. In a loss of "
            "your own, return one value for each example, e.g. `ops.sum(losses * mask, "
            "axis=-1) / ops.maximum(ops.sum(mask, axis=-1), 1)`. Keras rescales masked "
            "sequence losses so: use a loss with `reduction=None` or "
            '`reduction="sum"`'
        )
    path, kind = op.name.lower(), op.type
    if "batch_norm" in path or kind.startswith("FusedBatchNorm"):
        return (
            "replace BatchNormalization by GroupNormalization or LayerNormalization "
            "(`keras_dp_ext.models.make_compatible(model)` does it), or freeze it "
            "(`layer.trainable = False`)"
        )
    if kind == "RandomShuffle" or any(
        word in path for word in ("shuffle", "mix_up", "mixup", "cut_mix", "cutmix")
    ):
        return "mix or shuffle no examples inside the model; remove this augmentation"
    if op.op_def.is_stateful and ("Random" in kind or "Multinomial" in kind):
        return (
            "this op draws from data without a seed that can be set, so it cannot be "
            f"told from mixing. {_SEEDS}"
        )
    if "Ragged" in kind or "text_vectorization" in path or "string" in kind.lower():
        return (
            "pad to a fixed length (`output_sequence_length=...`) instead of the "
            "longest text of the batch"
        )
    if (known := _known_remedy(path)) is not None:
        return known
    if "loss" in path or "entropy" in path or "compile_loss" in path:
        if kind == "Mul" and any(factor.shape.rank == 0 for factor in op.inputs):
            overlaps = "dice" in path or "tversky" in path
            return _OVERLAP if overlaps else _ONE_NUMBER
        return _COMPARES if kind in _PRODUCTS else _remedy(None)
    if kind in _PRODUCTS and "/" not in path:
        return _COMPARES
    return (
        "compute nothing over the batch axis in this layer: no mean, maximum, sum, "
        "sort or comparison of examples. Statistics over the other axes are fine "
        "(GroupNormalization or LayerNormalization instead of batch statistics)"
    )


def _known_remedy(path: str) -> str | None:
    found = (text for part, text in _REMEDIES.items() if part in path.lower())
    return next(found, None)


def hidden_mixing_error(finding: Any) -> ValueError:
    return ValueError(
        f"The model may mix the examples of a batch: {finding} Made-up batches did not "
        "show it, but a condition or a small factor can hide it from them, and for "
        "other data one example would change the gradients of all. Nothing was "
        f"trained. What to do: {_known_remedy(finding.path) or _BY_ITSELF}"
    )


def draws_from_data_error(op: tf.Operation) -> ValueError:
    return ValueError(
        f"The gradients of this model cannot be verified: op `{op.name}` ({op.type}) "
        "draws random numbers from the data without a seed that can be set, other ones "
        f"in every run. Nothing was trained. What to do: {_SEEDS[0].lower()}{_SEEDS[1:]}."
    )


def wrong_gradients_error(variable: Any, what: str, largest: float) -> ValueError:
    remedy = "replace the layer, or report the model."
    if "time_distributed" in name(variable):
        remedy = (
            "Keras' TimeDistributed is wrong for series of unknown length. A layer "
            "that works on the last axis, as Dense does, needs none around it; or tell "
            "how long the series are, e.g. "
            "`dataset.map(lambda x, y: (tf.ensure_shape(x, [None, 9, 3]), y))`."
        )
    return ValueError(
        f"Per-example gradients of variable `{name(variable)}` are wrong: the {what} "
        "differs from the ordinary gradient. A gradient rule is wrong for an op of "
        "this layer, or the layer reorders the batch axis. Nothing was trained. "
        f"Received: largest difference {largest:.3g}. What to do: {remedy}"
    )


def wrong_norms_error(
    variables: Sequence[Any], received: float, expected: float
) -> ValueError:
    return ValueError(
        "Per-example gradient norms are wrong for variables "
        f"{[name(variable) for variable in variables]}: received {received:.6g}, "
        f"the ordinary gradient has {expected:.6g}. A gradient rule is wrong. "
        "Nothing was trained."
    )
