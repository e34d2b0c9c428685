"""Membership inference: who was in the training data, judging by the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from scipy import stats

from keras_dp_ext.audit.example_losses import example_losses
from keras_dp_ext.audit.roc import Roc
from keras_dp_ext.audit.shadow import Shadow

# Spread of logits below which two models count as equal.
_LEAST_SPREAD = 1e-3


@dataclasses.dataclass(frozen=True)
class MembershipInference:
    """The attacks that were made on a model.

    Attributes:
        attacks: The curve of each attack: "loss" always, "likelihood-ratio" if
            there were shadow models.
    """

    attacks: dict[str, Roc]

    @property
    def auc(self) -> float:
        """Area under the curve of the best attack."""
        return max(roc.auc for roc in self.attacks.values())

    def summary(self) -> dict[str, dict[str, float]]:
        """For each attack AUC and the TPR at FPRs of 0.1% and 1%."""
        return {
            name: {
                "auc": roc.auc,
                "tpr_at_fpr_0.001": roc.true_positive_rate_at(0.001),
                "tpr_at_fpr_0.01": roc.true_positive_rate_at(0.01),
            }
            for name, roc in self.attacks.items()
        }

    def plot(
        self, epsilon: float | None = None, delta: float = 1e-5, axes: Any = None
    ) -> Any:
        """Draws the curves on logarithmic axes, below what epsilon allows.

        Args:
            epsilon: If given, the bound of (epsilon, delta)-DP is drawn, too.
            delta: See `epsilon`.
            axes: Matplotlib axes; by default of a new figure.

        Returns:
            The axes.
        """
        from keras_dp_ext.audit.plot import plot_roc

        return plot_roc(self.attacks, epsilon, delta, axes)


def membership_inference(
    model: keras.Model,
    members: tuple[np.ndarray, np.ndarray],
    non_members: tuple[np.ndarray, np.ndarray],
    shadows: Sequence[Shadow] | None = None,
    batch_size: int = 256,
) -> MembershipInference:
    """Attacks a trained model: which examples did it see?

    "loss" believes that examples of low loss were seen (Yeom et al., 2018).
    "likelihood-ratio" compares the loss with those of shadow models that have and
    that have not seen the same example (LiRA, Carlini et al., 2022), as normal
    distributions of the logit of `exp(-loss)`. Without shadow models that have
    seen an example its offline form is used.

    Args:
        model: Compiled with one loss, and trained.
        members: `(x, y)` of examples that were in the training data.
        non_members: `(x, y)` of examples from the same source that were not.
        shadows: From `train_shadows`, or your own, on members and non-members in
            this order.
        batch_size: Examples that are predicted at a time.

    Returns:
        A `MembershipInference`, with AUC, TPR at small FPR, and a plot.

    Raises:
        ValueError: If `shadows` do not fit the examples.
    """
    x = np.concatenate([members[0], non_members[0]])
    y = np.concatenate([members[1], non_members[1]])
    is_member = np.arange(len(x)) < len(members[0])
    losses = example_losses(model, x, y, batch_size)
    scores = {"loss": -losses}
    if shadows:
        included = np.stack([np.asarray(s.included, bool) for s in shadows])
        if included.shape[1] != len(x):
            raise ValueError(
                "Argument `shadows` must say for each of the "
                f"{len(x)} examples whether it was included. "
                f"Received: {included.shape[1]} values"
            )
        logits = np.stack(
            [_logits(example_losses(s.model, x, y, batch_size)) for s in shadows]
        )
        scores["likelihood-ratio"] = likelihood_ratio(_logits(losses), logits, included)
    return MembershipInference(
        {name: Roc(s[is_member], s[~is_member]) for name, s in scores.items()}
    )


def likelihood_ratio(
    logits: np.ndarray, shadow_logits: np.ndarray, included: np.ndarray
) -> np.ndarray:
    """The score of LiRA for every example.

    Args:
        logits: `[N]`, of the attacked model.
        shadow_logits: `[shadows, N]`.
        included: `[shadows, N]`, which shadow has seen which example.

    Returns:
        `[N]`: log-likelihood ratio of "seen" to "not seen". If no shadow has seen
        any example: by how many standard deviations the model is more certain
        than models that have not seen it.

    Raises:
        ValueError: If no shadow model has left out some example.
    """
    if not np.all(np.any(~included, axis=0)):
        raise ValueError(
            "Argument `included` must leave every example out of some shadow model. "
            f"Received: {int(np.sum(~np.any(~included, axis=0)))} examples in all"
        )
    out_mean = _mean(shadow_logits, ~included)
    out_spread = _spread(shadow_logits - out_mean, ~included)
    if not np.any(included):
        return (logits - out_mean) / out_spread
    in_mean = _mean(shadow_logits, included)
    # An example that no shadow has seen is assumed to gain what others gain.
    in_mean = np.where(
        np.any(included, axis=0), in_mean, out_mean + np.nanmean(in_mean - out_mean)
    )
    in_spread = _spread(shadow_logits - in_mean, included)
    return stats.norm.logpdf(logits, in_mean, in_spread) - stats.norm.logpdf(
        logits, out_mean, out_spread
    )


def _logits(losses: np.ndarray) -> np.ndarray:
    """`log(p / (1 - p))` for `p = exp(-loss)`; finite for every loss."""
    losses = np.clip(np.nan_to_num(losses, nan=700.0), 1e-7, 700.0)
    return -np.log(np.expm1(losses))


def _mean(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """`[N]` means over the chosen rows; NaN where there are none."""
    count = chosen.sum(axis=0)
    total = np.where(chosen, values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _spread(residuals: np.ndarray, chosen: np.ndarray) -> float:
    """One standard deviation for all examples: few shadows give no more."""
    degrees = chosen.sum() - np.any(chosen, axis=0).sum()
    if degrees <= 0:
        return float(max(_LEAST_SPREAD, np.std(residuals[chosen])) or 1.0)
    variance = np.sum(np.square(residuals[chosen])) / degrees
    return float(max(_LEAST_SPREAD, np.sqrt(variance)))
