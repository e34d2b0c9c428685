"""The tanh filter of Amian, with an L2 clip that earns an epsilon, or as printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from keras_dp_ext._checks import check_clip_and_noise
from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.sensitivity import gaussian_release
from keras_dp_ext.bounding.tanh_filter import TanhFilter
from keras_dp_ext.mechanisms.base import Mechanism

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.gradients import PerExampleGradients


class Tanh(Mechanism):
    """Squashes every coordinate of every per-example gradient, then adds noise.

    `c * tanh(slope * g / k)` limits each coordinate to `(-c, c)` and keeps the
    order of small ones. That alone bounds the L2 norm of a row by `c * sqrt(n)`
    only, for `n` parameters. So by default the filtered row is also clipped to
    `l2_norm_clip`, and the release is the Gaussian mechanism of multiplier
    `noise_multiplier`: the epsilon of DP-SGD.

    `guarantee="published"` runs Algorithm 1 as printed: no clip, noise of
    standard deviation `noise_multiplier` against an assumed sensitivity of 1.
    Its proven epsilon is then that of a multiplier of
    `noise_multiplier / (c * sqrt(n))`, which is no meaningful guarantee for any
    network.

    Args:
        output_range: `c`, the filter's greatest output.
        active_range: `k`, the inputs beyond which the filter saturates.
        slope: Factor before the tangent's argument; 0.5 is the paper's Eq. 4.
        l2_norm_clip: L2 norm of a filtered row. Not used if published.
        noise_multiplier: Standard deviation of the noise over `l2_norm_clip`; if
            published, over 1.
        guarantee: `"proven"` or `"published"`.
        log_norms: Keeps statistics of the filtered rows' norms before the clip;
            see `norm_statistics`. They are computed without noise from private
            data: use them to study the filter, never publish them. They are not
            saved with the model.

    Example:

    >>> Tanh(l2_norm_clip=0.5, noise_multiplier=1.1).claim(num_parameters=100).proven
    GaussianRelease(noise_multiplier=1.1)

    References:
        Amian, "Improving the Algorithm of Deep Learning with Differential
        Privacy" (2021).
    """

    name = "tanh"

    def __init__(
        self,
        output_range: float = 1.0,
        active_range: float = 1.0,
        slope: float = 1.0,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        guarantee: Literal["proven", "published"] = "proven",
        log_norms: bool = False,
    ):
        check_clip_and_noise(l2_norm_clip, noise_multiplier, guarantee)
        self._bound = TanhFilter(
            output_range,
            active_range,
            slope,
            l2_norm_clip if guarantee == "proven" else None,
        )
        self.output_range = output_range
        self.active_range = active_range
        self.slope = slope
        self.l2_norm_clip = l2_norm_clip
        self.noise_multiplier = noise_multiplier
        self.guarantee = guarantee
        self.log_norms = log_norms
        self._norm_totals: Any = None

    def build(self, variables: Sequence[Any], add_variable: Callable[..., Any]) -> None:
        del variables
        if self.log_norms:
            self._norm_totals = add_variable(
                shape=(4,),
                dtype="float32",
                name="filtered_norm_totals",
                initializer="zeros",
                saved=False,
            )

    def bound(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        import tensorflow as tf

        from keras_dp_ext.bounding.tanh_rows import row_norms, tanh_filter

        total = self._bound.sum(gradients)
        if self.log_norms:

            def statistics(rows: Any) -> Any:
                norm = row_norms(
                    [
                        tanh_filter(
                            row, self.output_range, self.active_range, self.slope
                        )
                        for row in rows
                    ]
                )
                present = tf.cast(norm > 0, tf.float32)
                above = tf.cast(norm > 1, tf.float32)
                return [tf.stack([present, norm, tf.square(norm), above], axis=1)]

            # A second pass: only those who study the filter pay for it.
            (totals,) = gradients.sum_of(statistics)
            self._norm_totals.assign_add(totals)
        return total

    def draw_noise(
        self, shapes: Sequence[Any], seed: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        from keras_dp_ext.mechanisms.model_noise import standard_normals

        del step
        deviation = self.noise_multiplier
        if self.guarantee == "proven":
            deviation *= self.l2_norm_clip
        return standard_normals(shapes, seed, deviation)

    def claim(self, num_parameters: int, examples_per_microbatch: int = 1) -> Claim:
        if self.guarantee == "proven":
            return Claim(
                gaussian_release(self.noise_multiplier, 1.0, examples_per_microbatch),
                published_conversion="classic",
            )
        sensitivity = self._bound.sensitivity(num_parameters).norm
        return Claim(
            proven=gaussian_release(
                self.noise_multiplier, sensitivity, examples_per_microbatch
            ),
            # The paper counts one example to a microbatch.
            published=gaussian_release(self.noise_multiplier, 1.0),
            caveat=(
                "The tanh filter as printed gives no meaningful guarantee. It bounds "
                "each coordinate of a gradient, so one example's L2 norm can reach "
                f"c * sqrt(n) = {sensitivity:.4g} for n = {num_parameters} "
                "parameters; the published epsilon takes it as 1. Use "
                "`guarantee='proven'` for an epsilon that holds."
            ),
            published_conversion="classic",
        )

    def norm_statistics(self) -> dict[str, float]:
        """How large filtered rows have been, since the last call.

        The paper takes their L2 norm as 1 ("not far from reality"); this says how
        far. NOT private: exact statistics of the training data.

        Returns:
            `mean`, `root_mean_square` and `fraction_above_one` of the norms of
            the filtered rows before any clip, rows of zeros left out.

        Raises:
            ValueError: If `log_norms` is off.
        """
        if self._norm_totals is None:
            raise ValueError(
                "Norms are recorded only by a mechanism that is built with "
                f"`log_norms=True`. Received: log_norms={self.log_norms}"
            )
        rows, total, squares, above = map(float, self._norm_totals.numpy())
        self._norm_totals.assign([0.0] * 4)
        rows = max(rows, 1.0)
        return {
            "mean": total / rows,
            "root_mean_square": (squares / rows) ** 0.5,
            "fraction_above_one": above / rows,
        }
