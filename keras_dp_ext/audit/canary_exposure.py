"""How far a language model remembers a secret that was put into its training data."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import scipy.special


def log_perplexities(
    model: keras.Model,
    x: Any,
    y: Any,
    sample_weight: Any = None,
    from_logits: bool = True,
    batch_size: int = 64,
) -> np.ndarray:
    """How little a model expects texts: minus the log-probability of each, in bits.

    Args:
        model: Predicts `[N, time, words]`.
        x: Inputs, as for `model.predict`.
        y: The words that come next, `[N, time]`.
        sample_weight: `[N, time]`; 0 for words that do not count, such as padding and
            what all texts share.
        from_logits: Whether the model predicts logits, not probabilities.
        batch_size: Texts that are predicted at a time.

    Returns:
        `[N]` sums over words.
    """
    y = np.asarray(y)
    outputs = model.predict(x, batch_size=batch_size, verbose=0).astype(np.float64)
    if outputs.ndim != 3 or outputs.shape[:2] != y.shape:
        raise ValueError(
            "Argument `model` must predict `[N, time, words]` for `y` of `[N, time]`. "
            f"Received: predictions of shape {outputs.shape}, y of shape {y.shape}"
        )
    logits = outputs if from_logits else np.log(outputs)
    chosen = np.take_along_axis(logits, y[..., None].astype(int), axis=2)[..., 0]
    nats = scipy.special.logsumexp(logits, axis=2) - chosen
    weights = 1.0 if sample_weight is None else np.asarray(sample_weight)
    return (nats * weights).sum(axis=1) / np.log(2.0)


def canary_exposure(losses: Any, candidate_losses: Any) -> np.ndarray:
    """The exposure of canaries: by how many bits a model narrows down each of them.

    A canary is a text with a random secret ("my number is 4810"). It is put into the
    training data; the candidates are other secrets that were drawn in the same way, and
    were not. If `rank` is the place of the canary among the candidates and itself, by
    how much the model expects it, exposure is `log2(candidates + 1) - log2(rank)`: 0
    for the least expected, and at most `log2(candidates + 1)`, for the first.

    A model that has never seen the canary has an exposure of `t` or more with
    probability `2**-t`, and of 1.4 on average. So values beyond 10 say that the secret
    was learned by heart. Low values prove nothing: an attack that fails is no guarantee.

    Args:
        losses: `[canaries]`, such as `log_perplexities` of the texts with the canaries.
        candidate_losses: The same of the candidates; equal ones count as ahead.

    Returns:
        `[canaries]` exposures.

    Example:

    >>> from keras_dp_ext import audit
    >>> audit.canary_exposure([0.5, 9.5], candidate_losses=range(1, 16))
    array([4.        , 0.67807191])

    References:
        Carlini et al. 2019, "The Secret Sharer", section 4.
    """
    canaries = _finite("losses", losses)
    candidates = np.sort(_finite("candidate_losses", candidate_losses))
    if not len(candidates):
        raise ValueError("Argument `candidate_losses` must not be empty. Received: []")
    rank = 1 + np.searchsorted(candidates, canaries, side="right")
    return np.log2(len(candidates) + 1) - np.log2(rank)


def _finite(name: str, values: Any) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    if np.isnan(array).any():
        raise ValueError(f"Argument `{name}` must not have NaN. Received: {array}")
    return array
