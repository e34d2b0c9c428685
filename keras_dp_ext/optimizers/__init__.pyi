"""Made by `python -m tools.stubs` with Keras 3.15.1; do not edit."""

from typing import Any

import keras
from typing_extensions import Self

from keras_dp_ext.optimizers.adam_bc import AdamBC as AdamBC
from keras_dp_ext.optimizers.make_private import make_private as make_private
from keras_dp_ext.optimizers.private_optimizer import (
    PrivateOptimizer as PrivateOptimizer,
)
from keras_dp_ext.optimizers.tanh_filtered_sgd import (
    TanhFilteredSGD as TanhFilteredSGD,
)

class BLTSGD(PrivateOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD` made private. Clips each row and adds noise of buffered linear Toeplitz matrices.

    Needs no random sampling: train on `dp.data.fixed_order_batches`. See
    `dp.noise.BufferedToeplitz`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Standard deviation of the independent draws, over `C`.
        buffers: Decaying sums of past noise that are kept.
        steps: Number of updates for which they are optimised.
        separation: Updates in a pass over the data, for which they are optimised.
        strategy_momentum: Momentum of the optimizer, for which they are optimised.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.SGD`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(BLTSGD(learning_rate=0.01), loss="mse")

    References:
        Dvijotham et al., "Efficient and Near-Optimal Noise Generation for Streaming
        Differential Privacy" (2024).
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 10.0,
        buffers: int = 3,
        steps: int = 1000,
        separation: int | None = None,
        strategy_momentum: float = 0.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "BLTSGD",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        buffers: int = 3,
        separation: int | None = None,
        strategy_momentum: float = 0.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "BLTSGD",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class DPFTRLSGD(PrivateOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD` made private. Clips each row and adds noise by tree aggregation.

    Needs no random sampling: train on `dp.data.fixed_order_batches`, or on shuffled data
    with a tree for each pass (`restart_every`). See `dp.noise.TreeAggregation`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Noise of a node of the tree, over `C`.
        restart_every: A new tree begins after this many updates. `None`: never.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.SGD`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(DPFTRLSGD(learning_rate=0.01), loss="mse")

    References:
        Kairouz et al., "Practical and Private (Deep) Learning without Sampling or
        Shuffling" (2021).
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 10.0,
        restart_every: int | None = None,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DPFTRLSGD",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        restart_every: int | None = None,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DPFTRLSGD",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class DPSGD(PrivateOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD` made private. Clips each row to `l2_norm_clip` and adds `N(0, (sigma * C)^2)`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Standard deviation of the noise, in units of `C`.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.SGD`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(DPSGD(learning_rate=0.01), loss="mse")

    References:
        Abadi et al., "Deep Learning with Differential Privacy" (2016),
        Algorithm 1.
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DPSGD",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DPSGD",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class AdaClipAdam(PrivateOptimizer, keras.optimizers.Adam):
    """`keras.optimizers.Adam` made private. Clips `(g - a) / b` to norm 1, adds noise, and undoes the transformation.

    `a` is a moving average of the released gradients, and
    `b_i = sqrt(s_i * sum_j s_j / gamma)` follows from moving standard deviations `s_i`
    about it: the transformation with the least noise under which the expected squared
    norm is `gamma`. Both come from earlier releases, so they cost no privacy: measured
    in units of `b`, a row moves the sum by at most 1, and the noise has the standard
    deviation `noise_multiplier`.

    Where the published algorithm takes one row a step, a lot has many: the mean over a
    lot of `L` rows varies `L` times less than a row, and its noise `L**2` times less,
    which is taken into account in `s`.

    `DirectionalSGD(direction="adaclip")` scales, but does not centre, and is a good deal
    faster: here every row is made explicitly.

    Args:
        noise_multiplier: Standard deviation of the noise in units of the bound.
        gamma: Expected squared norm after the transformation, in (0, 1]: at most that
            share of the rows is clipped. Less means less clipping and more noise.
        mean_decay: Decay of the mean, `beta_1`.
        variance_decay: Decay of the variances, `beta_2`.
        least_variance: `h_1`, below which no variance is taken.
        greatest_variance: `h_2`, above which none is taken.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.Adam`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(AdaClipAdam(learning_rate=0.01), loss="mse")

    References:
        Pichapati, Suresh, Yu, Reddi, Kumar, "AdaCliP: Adaptive Clipping for Private
        SGD" (2019), Algorithms 1 and 2; Xiang et al. (2021), section 6, compare with it.
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        noise_multiplier: float = 1.1,
        gamma: float = 1.0,
        mean_decay: float = 0.99,
        variance_decay: float = 0.9,
        least_variance: float = 1e-12,
        greatest_variance: float = 10.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        epsilon: Any = 1e-07,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "AdaClipAdam",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        gamma: float = 1.0,
        mean_decay: float = 0.99,
        variance_decay: float = 0.9,
        least_variance: float = 1e-12,
        greatest_variance: float = 10.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "AdaClipAdam",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class AdaClipSGD(PrivateOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD` made private. Clips `(g - a) / b` to norm 1, adds noise, and undoes the transformation.

    `a` is a moving average of the released gradients, and
    `b_i = sqrt(s_i * sum_j s_j / gamma)` follows from moving standard deviations `s_i`
    about it: the transformation with the least noise under which the expected squared
    norm is `gamma`. Both come from earlier releases, so they cost no privacy: measured
    in units of `b`, a row moves the sum by at most 1, and the noise has the standard
    deviation `noise_multiplier`.

    Where the published algorithm takes one row a step, a lot has many: the mean over a
    lot of `L` rows varies `L` times less than a row, and its noise `L**2` times less,
    which is taken into account in `s`.

    `DirectionalSGD(direction="adaclip")` scales, but does not centre, and is a good deal
    faster: here every row is made explicitly.

    Args:
        noise_multiplier: Standard deviation of the noise in units of the bound.
        gamma: Expected squared norm after the transformation, in (0, 1]: at most that
            share of the rows is clipped. Less means less clipping and more noise.
        mean_decay: Decay of the mean, `beta_1`.
        variance_decay: Decay of the variances, `beta_2`.
        least_variance: `h_1`, below which no variance is taken.
        greatest_variance: `h_2`, above which none is taken.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.SGD`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(AdaClipSGD(learning_rate=0.01), loss="mse")

    References:
        Pichapati, Suresh, Yu, Reddi, Kumar, "AdaCliP: Adaptive Clipping for Private
        SGD" (2019), Algorithms 1 and 2; Xiang et al. (2021), section 6, compare with it.
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        noise_multiplier: float = 1.1,
        gamma: float = 1.0,
        mean_decay: float = 0.99,
        variance_decay: float = 0.9,
        least_variance: float = 1e-12,
        greatest_variance: float = 10.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "AdaClipSGD",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        gamma: float = 1.0,
        mean_decay: float = 0.99,
        variance_decay: float = 0.9,
        least_variance: float = 1e-12,
        greatest_variance: float = 10.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "AdaClipSGD",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class AutomaticAdam(PrivateOptimizer, keras.optimizers.Adam):
    """`keras.optimizers.Adam` made private. Gives every row nearly the same norm, AUTO-S; see `dp.bounding.Normalized`.

    Args:
        l2_norm_clip: The norm `C`, which only scales the learning rate.
        noise_multiplier: Standard deviation of the noise, in units of `C`.
        stability: What is added to the norm of a row.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.Adam`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(AutomaticAdam(learning_rate=0.01), loss="mse")

    References:
        Bu, Wang, Zha, Karypis, "Automatic Clipping: Differentially Private Deep
        Learning Made Easier and Stronger" (2022).
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        stability: float = 0.01,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        epsilon: Any = 1e-07,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "AutomaticAdam",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        stability: float = 0.01,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "AutomaticAdam",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class AutomaticSGD(PrivateOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD` made private. Gives every row nearly the same norm, AUTO-S; see `dp.bounding.Normalized`.

    Args:
        l2_norm_clip: The norm `C`, which only scales the learning rate.
        noise_multiplier: Standard deviation of the noise, in units of `C`.
        stability: What is added to the norm of a row.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.SGD`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(AutomaticSGD(learning_rate=0.01), loss="mse")

    References:
        Bu, Wang, Zha, Karypis, "Automatic Clipping: Differentially Private Deep
        Learning Made Easier and Stronger" (2022).
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        stability: float = 0.01,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "AutomaticSGD",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        stability: float = 0.01,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "AutomaticSGD",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class BandInvSGD(PrivateOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD` made private. Clips each row and adds noise that is drawn again from `bands` seeds.

    Needs no random sampling and no memory: train on `dp.data.fixed_order_batches`. See
    `dp.noise.BandedInverse`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Standard deviation of the independent draws, over `C`.
        bands: Draws of which the noise of a release is made.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.SGD`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(BandInvSGD(learning_rate=0.01), loss="mse")

    References:
        Kalinin, McMahan, Upadhyay, Lampert, "Back to Square Roots" (2025).
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 10.0,
        bands: int = 16,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "BandInvSGD",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        bands: int = 16,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "BandInvSGD",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class BandMFAdam(PrivateOptimizer, keras.optimizers.Adam):
    """`keras.optimizers.Adam` made private. Clips each row and adds noise that is correlated over `bands` releases.

    Train on `dp.data.cyclic_poisson_batches(..., cycle=bands)`, or without amplification
    on `dp.data.fixed_order_batches`. See `dp.noise.Banded`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Noise over `C`, relative to one participation: epsilon is that
            of DP-SGD with this multiplier, a `bands`-th of the steps and `bands` times
            the sampling rate.
        bands: Releases over which noise is correlated. 1 is DP-SGD.
        steps: Number of updates for which the bands are optimised.
        strategy_momentum: Momentum of the optimizer, for which they are optimised.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.Adam`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(BandMFAdam(learning_rate=0.01), loss="mse")

    References:
        Choquette-Choo et al., "(Amplified) Banded Matrix Factorization" (2023).
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        bands: int = 16,
        steps: int = 1000,
        strategy_momentum: float = 0.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        epsilon: Any = 1e-07,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "BandMFAdam",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        bands: int = 16,
        strategy_momentum: float = 0.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "BandMFAdam",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class BandMFSGD(PrivateOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD` made private. Clips each row and adds noise that is correlated over `bands` releases.

    Train on `dp.data.cyclic_poisson_batches(..., cycle=bands)`, or without amplification
    on `dp.data.fixed_order_batches`. See `dp.noise.Banded`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Noise over `C`, relative to one participation: epsilon is that
            of DP-SGD with this multiplier, a `bands`-th of the steps and `bands` times
            the sampling rate.
        bands: Releases over which noise is correlated. 1 is DP-SGD.
        steps: Number of updates for which the bands are optimised.
        strategy_momentum: Momentum of the optimizer, for which they are optimised.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.SGD`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(BandMFSGD(learning_rate=0.01), loss="mse")

    References:
        Choquette-Choo et al., "(Amplified) Banded Matrix Factorization" (2023).
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        bands: int = 16,
        steps: int = 1000,
        strategy_momentum: float = 0.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "BandMFSGD",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        bands: int = 16,
        strategy_momentum: float = 0.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "BandMFSGD",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class DPAdagrad(PrivateOptimizer, keras.optimizers.Adagrad):
    """`keras.optimizers.Adagrad` made private. Clips each row to `l2_norm_clip` and adds `N(0, (sigma * C)^2)`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Standard deviation of the noise, in units of `C`.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.Adagrad`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(DPAdagrad(learning_rate=0.01), loss="mse")

    References:
        Abadi et al., "Deep Learning with Differential Privacy" (2016),
        Algorithm 1.
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        initial_accumulator_value: Any = 0.1,
        epsilon: Any = 1e-07,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DPAdagrad",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        initial_accumulator_value: Any = 0.1,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DPAdagrad",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class DPAdam(PrivateOptimizer, keras.optimizers.Adam):
    """`keras.optimizers.Adam` made private. Clips each row to `l2_norm_clip` and adds `N(0, (sigma * C)^2)`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Standard deviation of the noise, in units of `C`.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.Adam`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(DPAdam(learning_rate=0.01), loss="mse")

    References:
        Abadi et al., "Deep Learning with Differential Privacy" (2016),
        Algorithm 1.
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        epsilon: Any = 1e-07,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DPAdam",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DPAdam",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class DPAdamBC(PrivateOptimizer, AdamBC):
    """`keras.optimizers.AdamBC` made private. Clips each row to `l2_norm_clip` and adds `N(0, (sigma * C)^2)`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Standard deviation of the noise, in units of `C`.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.AdamBC`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(DPAdamBC(learning_rate=0.01), loss="mse")

    References:
        Abadi et al., "Deep Learning with Differential Privacy" (2016),
        Algorithm 1.
    """

    def __init__(
        self,
        *,
        learning_rate: Any = 0.001,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-08,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        name: str | None = "DPAdamBC",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: Any = 0.001,
        l2_norm_clip: float = 1.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        name: str | None = "DPAdamBC",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class DPAdamW(PrivateOptimizer, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` made private. Clips each row to `l2_norm_clip` and adds `N(0, (sigma * C)^2)`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Standard deviation of the noise, in units of `C`.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.AdamW`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(DPAdamW(learning_rate=0.01), loss="mse")

    References:
        Abadi et al., "Deep Learning with Differential Privacy" (2016),
        Algorithm 1.
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        weight_decay: Any = 0.004,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        epsilon: Any = 1e-07,
        amsgrad: Any = False,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DPAdamW",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        weight_decay: Any = 0.004,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        amsgrad: Any = False,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DPAdamW",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class DPRMSprop(PrivateOptimizer, keras.optimizers.RMSprop):
    """`keras.optimizers.RMSprop` made private. Clips each row to `l2_norm_clip` and adds `N(0, (sigma * C)^2)`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Standard deviation of the noise, in units of `C`.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.RMSprop`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(DPRMSprop(learning_rate=0.01), loss="mse")

    References:
        Abadi et al., "Deep Learning with Differential Privacy" (2016),
        Algorithm 1.
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        rho: Any = 0.9,
        momentum: Any = 0.0,
        epsilon: Any = 1e-07,
        centered: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DPRMSprop",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        rho: Any = 0.9,
        momentum: Any = 0.0,
        centered: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DPRMSprop",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class DirectionalAdam(PrivateOptimizer, keras.optimizers.Adam):
    """`keras.optimizers.Adam` made private. Noise whose size differs by coordinate, at the privacy of equal noise.

    Rows are clipped to the ellipsoid `sum_i (g_i / s_i)**2 <= l2_norm_clip**2`, and
    the sum gets N(0, (noise_multiplier * l2_norm_clip * s_i)**2): the Gaussian
    mechanism of multiplier `noise_multiplier`, for any `s` that comes from earlier
    releases. Where gradients of some coordinates are much smaller than others,
    small `s_i` keep noise from burying them. `s` starts at 1, which is DP-SGD, and
    then follows estimates that are made from noised sums only, at no privacy cost.
    It is normalised so that `l2_norm_clip` and the learning rate mean what they
    mean in DP-SGD.

    `guarantee="published"` runs Algorithm 1 as printed, and counts for each step
    the noise that a worst-case neighbour really faces; its proven epsilon is that
    of the counted noise.

    Args:
        direction: What `s` is made from, with `v_i` the second moment of
            coordinate `i`. `"gradient"`: `s_i ~ (v_i / |w_i|)**(1/3)`, `w` the
            gradient. `"uniform"`: `s_i ~ v_i**(1/3)`, the paper's `w = 1`.
            `"adaclip"`: `s_i ~ v_i**(1/4)`. Or public weights `w`, more for what
            must stay precise: a list with an array or number for each trainable
            variable, or a dictionary by variable path or name (others get 1).
            They must not be made from the private data.
        l2_norm_clip: Radius `C` of the ellipsoid; `alpha` if published.
        noise_multiplier: `sigma`. Not used if published: `published_budget`
            determines the noise there.
        guarantee: `"proven"` or `"published"`.
        smoothing: Decay of the moving averages behind `s`, in [0, 1).
        max_ratio: `s` stays within `[1 / max_ratio, max_ratio]`.
        pruning_ratio: Share of the coordinates that an update leaves out, for
            example 0.9, or `None`. What is not measured is neither noised nor
            released; see `pruning.py`. If published, the largest coordinates
            of the exact sum are left, as printed: epsilon is infinite.
        published_budget: A `PublishedBudget` (or a dictionary of its arguments);
            required if published.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.Adam`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(DirectionalAdam(learning_rate=0.01), loss="mse")

    References:
        Xiang et al., "Differentially-Private Deep Learning With Directional
        Noise" (2021). Pichapati et al., "AdaCliP: Adaptive Clipping for Private
        SGD" (2019).
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        direction: Any = "gradient",
        guarantee: Any = "proven",
        smoothing: float = 0.95,
        max_ratio: float = 10000.0,
        pruning_ratio: float | None = None,
        published_budget: Any = None,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        epsilon: Any = 1e-07,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DirectionalAdam",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        direction: Any = "gradient",
        guarantee: Any = "proven",
        smoothing: float = 0.95,
        max_ratio: float = 10000.0,
        pruning_ratio: float | None = None,
        published_budget: Any = None,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DirectionalAdam",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class DirectionalSGD(PrivateOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD` made private. Noise whose size differs by coordinate, at the privacy of equal noise.

    Rows are clipped to the ellipsoid `sum_i (g_i / s_i)**2 <= l2_norm_clip**2`, and
    the sum gets N(0, (noise_multiplier * l2_norm_clip * s_i)**2): the Gaussian
    mechanism of multiplier `noise_multiplier`, for any `s` that comes from earlier
    releases. Where gradients of some coordinates are much smaller than others,
    small `s_i` keep noise from burying them. `s` starts at 1, which is DP-SGD, and
    then follows estimates that are made from noised sums only, at no privacy cost.
    It is normalised so that `l2_norm_clip` and the learning rate mean what they
    mean in DP-SGD.

    `guarantee="published"` runs Algorithm 1 as printed, and counts for each step
    the noise that a worst-case neighbour really faces; its proven epsilon is that
    of the counted noise.

    Args:
        direction: What `s` is made from, with `v_i` the second moment of
            coordinate `i`. `"gradient"`: `s_i ~ (v_i / |w_i|)**(1/3)`, `w` the
            gradient. `"uniform"`: `s_i ~ v_i**(1/3)`, the paper's `w = 1`.
            `"adaclip"`: `s_i ~ v_i**(1/4)`. Or public weights `w`, more for what
            must stay precise: a list with an array or number for each trainable
            variable, or a dictionary by variable path or name (others get 1).
            They must not be made from the private data.
        l2_norm_clip: Radius `C` of the ellipsoid; `alpha` if published.
        noise_multiplier: `sigma`. Not used if published: `published_budget`
            determines the noise there.
        guarantee: `"proven"` or `"published"`.
        smoothing: Decay of the moving averages behind `s`, in [0, 1).
        max_ratio: `s` stays within `[1 / max_ratio, max_ratio]`.
        pruning_ratio: Share of the coordinates that an update leaves out, for
            example 0.9, or `None`. What is not measured is neither noised nor
            released; see `pruning.py`. If published, the largest coordinates
            of the exact sum are left, as printed: epsilon is infinite.
        published_budget: A `PublishedBudget` (or a dictionary of its arguments);
            required if published.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.SGD`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(DirectionalSGD(learning_rate=0.01), loss="mse")

    References:
        Xiang et al., "Differentially-Private Deep Learning With Directional
        Noise" (2021). Pichapati et al., "AdaCliP: Adaptive Clipping for Private
        SGD" (2019).
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        direction: Any = "gradient",
        guarantee: Any = "proven",
        smoothing: float = 0.95,
        max_ratio: float = 10000.0,
        pruning_ratio: float | None = None,
        published_budget: Any = None,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DirectionalSGD",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        direction: Any = "gradient",
        guarantee: Any = "proven",
        smoothing: float = 0.95,
        max_ratio: float = 10000.0,
        pruning_ratio: float | None = None,
        published_budget: Any = None,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "DirectionalSGD",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class EncodedAdam(PrivateOptimizer, keras.optimizers.Adam):
    """`keras.optimizers.Adam` made private. Clamps gradients rank by rank to a codebook's vectors, then adds any noise.

    Each per-example gradient is replaced by one that is dominated by a vector of a
    public codebook: its t-th largest magnitude is at most the vector's t-th
    largest entry. What one example can do is thus known coordinate by coordinate,
    so that noise of any symmetric density has a computable epsilon. Finally the
    noised sum may be multiplied by its distance from the noise distribution:
    updates that look like pure noise hardly move the weights.

    The defaults are the paper's.

    Args:
        codebook: A `keras_dp_ext.bounding.Codebook`, or public vectors of your own,
            `[n, parameters]` (a `VectorCodebook`); `None` is the paper's, 1000
            standard normal vectors of norm 1. Its norm plays the part of DP-SGD's
            `l2_norm_clip`.
        noise: A `keras_dp_ext.noise.Noise` or its name, in the units of the
            codebook's norm. Or noises of several families, by release number, such as
            `{0: dp.noise.Gaussian(1.1), 500: dp.noise.StudentT(9, 1.0)}`.
        denoise: The distance by which the noised sum is multiplied: "ks"
            (Kolmogorov-Smirnov), "wasserstein", "energy", or a function of the noised
            vector and its noise; see `keras_dp_ext.refining.Denoising`. `None` leaves
            it as it is. The distance of the last step is
            `mechanism.denoising_factor`.
        noise_schedule: Multiplies the noise's scale: a Keras schedule or another
            function of the release number, a dictionary from release numbers to
            factors, such as `{0: 1.0, 1000: 0.8}`, or a `NoiseSchedule`.
        ranking: "bucket" or, as a slow reference, "exact"; see
            `keras_dp_ext.bounding.encode_rows.encode_rows`.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.Adam`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(EncodedAdam(learning_rate=0.01), loss="mse")

    References:

    - Nasr, Shokri, Houmansadr (2020), "Improving Deep Learning with Differential
      Privacy using Gradient Encoding and Denoising".
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        codebook: Any = None,
        noise: Any = "student-t",
        denoise: Any = "ks",
        noise_schedule: Any = None,
        ranking: str = "bucket",
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        epsilon: Any = 1e-07,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "EncodedAdam",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        codebook: Any = None,
        noise: Any = "student-t",
        denoise: Any = "ks",
        noise_schedule: Any = None,
        ranking: str = "bucket",
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "EncodedAdam",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class EncodedSGD(PrivateOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD` made private. Clamps gradients rank by rank to a codebook's vectors, then adds any noise.

    Each per-example gradient is replaced by one that is dominated by a vector of a
    public codebook: its t-th largest magnitude is at most the vector's t-th
    largest entry. What one example can do is thus known coordinate by coordinate,
    so that noise of any symmetric density has a computable epsilon. Finally the
    noised sum may be multiplied by its distance from the noise distribution:
    updates that look like pure noise hardly move the weights.

    The defaults are the paper's.

    Args:
        codebook: A `keras_dp_ext.bounding.Codebook`, or public vectors of your own,
            `[n, parameters]` (a `VectorCodebook`); `None` is the paper's, 1000
            standard normal vectors of norm 1. Its norm plays the part of DP-SGD's
            `l2_norm_clip`.
        noise: A `keras_dp_ext.noise.Noise` or its name, in the units of the
            codebook's norm. Or noises of several families, by release number, such as
            `{0: dp.noise.Gaussian(1.1), 500: dp.noise.StudentT(9, 1.0)}`.
        denoise: The distance by which the noised sum is multiplied: "ks"
            (Kolmogorov-Smirnov), "wasserstein", "energy", or a function of the noised
            vector and its noise; see `keras_dp_ext.refining.Denoising`. `None` leaves
            it as it is. The distance of the last step is
            `mechanism.denoising_factor`.
        noise_schedule: Multiplies the noise's scale: a Keras schedule or another
            function of the release number, a dictionary from release numbers to
            factors, such as `{0: 1.0, 1000: 0.8}`, or a `NoiseSchedule`.
        ranking: "bucket" or, as a slow reference, "exact"; see
            `keras_dp_ext.bounding.encode_rows.encode_rows`.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.SGD`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(EncodedSGD(learning_rate=0.01), loss="mse")

    References:

    - Nasr, Shokri, Houmansadr (2020), "Improving Deep Learning with Differential
      Privacy using Gradient Encoding and Denoising".
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        codebook: Any = None,
        noise: Any = "student-t",
        denoise: Any = "ks",
        noise_schedule: Any = None,
        ranking: str = "bucket",
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "EncodedSGD",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        codebook: Any = None,
        noise: Any = "student-t",
        denoise: Any = "ks",
        noise_schedule: Any = None,
        ranking: str = "bucket",
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "EncodedSGD",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class PerLayerAdam(PrivateOptimizer, keras.optimizers.Adam):
    """`keras.optimizers.Adam` made private. Clips each layer's gradient by itself; see `dp.bounding.PerLayerClip`.

    Args:
        l2_norm_clip: The greatest L2 norm `C` of a row, over all layers.
        noise_multiplier: Standard deviation of the noise, in units of `C`.
        layer_sizes: How many weights each layer has; by default each weight is a
            layer of its own.
        shares: The clips of the layers relative to each other; by default all the same.
        groups: In place of `layer_sizes`, the number of its group for each weight.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.Adam`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(PerLayerAdam(learning_rate=0.01), loss="mse")

    References:
        McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent
        Language Models" (2018).
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        layer_sizes: Any = None,
        shares: Any = None,
        groups: Any = None,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        epsilon: Any = 1e-07,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "PerLayerAdam",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        layer_sizes: Any = None,
        shares: Any = None,
        groups: Any = None,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "PerLayerAdam",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class PerLayerSGD(PrivateOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD` made private. Clips each layer's gradient by itself; see `dp.bounding.PerLayerClip`.

    Args:
        l2_norm_clip: The greatest L2 norm `C` of a row, over all layers.
        noise_multiplier: Standard deviation of the noise, in units of `C`.
        layer_sizes: How many weights each layer has; by default each weight is a
            layer of its own.
        shares: The clips of the layers relative to each other; by default all the same.
        groups: In place of `layer_sizes`, the number of its group for each weight.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.SGD`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(PerLayerSGD(learning_rate=0.01), loss="mse")

    References:
        McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent
        Language Models" (2018).
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        layer_sizes: Any = None,
        shares: Any = None,
        groups: Any = None,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "PerLayerSGD",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        layer_sizes: Any = None,
        shares: Any = None,
        groups: Any = None,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "PerLayerSGD",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class QuantileAdam(PrivateOptimizer, keras.optimizers.Adam):
    """`keras.optimizers.Adam` made private. Clips to `C`, which moves towards a quantile of the norms of the rows.

    With each sum a lot also releases a count: each row adds 1/2 if its norm is at most
    `C`, and -1/2 if it was clipped. The count has noise of its own, and the next clip
    is `C * exp(-rate * (fraction - quantile))`.

    **What it costs.** Measured in units of its noise, a row adds to both a vector of
    squared length `1 / s**2 + (1/2)**2 / b**2`, where `s` is the noise multiplier of the
    sum and `b` the standard deviation of the count's noise. That is one Gaussian release
    of multiplier `z = (s**-2 + (2 b)**-2) ** -0.5`, whatever `C` is, since it follows
    from earlier releases. `z` is what you pass; `s` is a little more.

    Args:
        l2_norm_clip: The first clip.
        noise_multiplier: `z`: what both releases together are accounted as.
        target_quantile: The share of rows that are not to be clipped.
        clip_learning_rate: How fast the clip moves.
        count_noise: Standard deviation of the noise on the count, in units of
            `noise_multiplier`; above 1/2.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.Adam`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(QuantileAdam(learning_rate=0.01), loss="mse")

    References:
        Andrew, Thakkar, McMahan, Ramaswamy, "Differentially Private Learning with
        Adaptive Clipping" (2021), Algorithm 1 and Theorem 1.
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        target_quantile: float = 0.5,
        clip_learning_rate: float = 0.2,
        count_noise: float = 10.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        epsilon: Any = 1e-07,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "QuantileAdam",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        target_quantile: float = 0.5,
        clip_learning_rate: float = 0.2,
        count_noise: float = 10.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "QuantileAdam",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class QuantileSGD(PrivateOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD` made private. Clips to `C`, which moves towards a quantile of the norms of the rows.

    With each sum a lot also releases a count: each row adds 1/2 if its norm is at most
    `C`, and -1/2 if it was clipped. The count has noise of its own, and the next clip
    is `C * exp(-rate * (fraction - quantile))`.

    **What it costs.** Measured in units of its noise, a row adds to both a vector of
    squared length `1 / s**2 + (1/2)**2 / b**2`, where `s` is the noise multiplier of the
    sum and `b` the standard deviation of the count's noise. That is one Gaussian release
    of multiplier `z = (s**-2 + (2 b)**-2) ** -0.5`, whatever `C` is, since it follows
    from earlier releases. `z` is what you pass; `s` is a little more.

    Args:
        l2_norm_clip: The first clip.
        noise_multiplier: `z`: what both releases together are accounted as.
        target_quantile: The share of rows that are not to be clipped.
        clip_learning_rate: How fast the clip moves.
        count_noise: Standard deviation of the noise on the count, in units of
            `noise_multiplier`; above 1/2.
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.SGD`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(QuantileSGD(learning_rate=0.01), loss="mse")

    References:
        Andrew, Thakkar, McMahan, Ramaswamy, "Differentially Private Learning with
        Adaptive Clipping" (2021), Algorithm 1 and Theorem 1.
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        target_quantile: float = 0.5,
        clip_learning_rate: float = 0.2,
        count_noise: float = 10.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "QuantileSGD",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        target_quantile: float = 0.5,
        clip_learning_rate: float = 0.2,
        count_noise: float = 10.0,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "QuantileSGD",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class TanhAdam(PrivateOptimizer, keras.optimizers.Adam):
    """`keras.optimizers.Adam` made private. Squashes every coordinate of every per-example gradient, then adds noise.

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
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.Adam`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(TanhAdam(learning_rate=0.01), loss="mse")

    References:
        Amian, "Improving the Algorithm of Deep Learning with Differential
        Privacy" (2021).
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        output_range: float = 1.0,
        active_range: float = 1.0,
        slope: float = 1.0,
        guarantee: Any = "proven",
        log_norms: bool = False,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        epsilon: Any = 1e-07,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "TanhAdam",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        l2_norm_clip: float = 1.0,
        output_range: float = 1.0,
        active_range: float = 1.0,
        slope: float = 1.0,
        guarantee: Any = "proven",
        log_norms: bool = False,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        amsgrad: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "TanhAdam",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """

class TanhSGD(PrivateOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD` made private. Squashes every coordinate of every per-example gradient, then adds noise.

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
        num_microbatches: Into how many microbatches a batch is cut; each is averaged
            before it is bounded. `None`: one for each example. Microbatches of more
            than one example double the sensitivity, and epsilon accounts for it.
        gradient_accumulation_steps: Batches that make up one lot, with one draw of
            noise and one update at its end.
        expected_batch_size: The public number of examples in a lot, by which the sum
            is divided. Found by itself in `model.fit`.
        noise_seed: For tests only: reproducible noise protects nobody.
        secure_noise: Draws noise from a cryptographic generator and rounds the noised
            sum to a grid, against attacks on floating-point arithmetic. Slower.
        chunk_bytes: How many bytes of per-example gradients, or of the patches and
            products they are made of, are in work at a time. Smaller takes less memory
            and more time; the result is the same. `None`: 4 MB, which stay in a cache.
        physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
            batch is done in parts, with one draw of noise and one update: the result and
            epsilon are those of the whole batch. `None`: all rows at once.
        memory_limit: As `physical_batch_size`, found from the memory that a step may take
            beside what the process holds already: bytes, or "2GB" or "512MiB".

    All other arguments are those of `keras.optimizers.SGD`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(TanhSGD(learning_rate=0.01), loss="mse")

    References:
        Amian, "Improving the Algorithm of Deep Learning with Differential
        Privacy" (2021).
    """

    def __init__(
        self,
        *,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        output_range: float = 1.0,
        active_range: float = 1.0,
        slope: float = 1.0,
        guarantee: Any = "proven",
        log_norms: bool = False,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "TanhSGD",
    ) -> None: ...
    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        sampling: str | None = None,
        accountant: str = "rdp",
        num_parameters: int | None = None,
        adapted: Any = ...,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        l2_norm_clip: float = 1.0,
        output_range: float = 1.0,
        active_range: float = 1.0,
        slope: float = 1.0,
        guarantee: Any = "proven",
        log_norms: bool = False,
        num_microbatches: int | None = None,
        gradient_accumulation_steps: int | None = None,
        expected_batch_size: int | None = None,
        noise_seed: int | None = None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        momentum: Any = 0.0,
        nesterov: Any = False,
        weight_decay: Any = None,
        clipnorm: Any = None,
        clipvalue: Any = None,
        global_clipnorm: Any = None,
        use_ema: Any = False,
        ema_momentum: Any = 0.99,
        ema_overwrite_frequency: Any = None,
        loss_scale_factor: Any = None,
        name: str = "TanhSGD",
        **arguments: Any,
    ) -> Self:
        """An optimizer whose noise makes a training end at the given epsilon.

        Train with `dp.data.poisson_batches(x, y, batch_size)` for as many epochs, and with
        `PrivacyAccountant(delta=..., target_epsilon=...)`, which shows what is spent and
        keeps to the budget whatever else happens.

        Args:
            epsilon: Greatest epsilon that the training may spend. The optimizer's own
                argument of that name (Adam's) is called `base_epsilon` here.
            num_examples: Size of the training set.
            batch_size: (Expected) examples of one update.
            epochs: Passes over the data.
            steps: Number of updates, in place of epochs.
            delta: Target delta. By default the greatest power of ten below
                `1 / num_examples`.
            sampling: How batches are drawn: "poisson" (`dp.data.poisson_batches`, the
                default), or "shuffled" (arrays in `model.fit`), which takes far more noise;
                for correlated noise "cyclic-poisson" (the default of BandMF) or
                "fixed-order" (that of DP-FTRL and BLT), by the functions of these names.
            accountant: "rdp", or "pld", which is tighter, for Gaussian noise.
            num_parameters: `model.count_params()`, for mechanisms whose cost depends on
                it, such as encoding.
            adapted: Layers that were adapted on the same data, such as
                `dp.data.PrivateNormalization`: the noise leaves room for what they spent.
            **arguments: All other arguments of the optimizer, but its noise.

        Raises:
            ValueError: If an argument is out of range, or no noise is enough.

        Example:

        >>> import keras_dp_ext as dp
        >>> optimizer = dp.optimizers.DPSGD.for_budget(
        ...     epsilon=3.0, num_examples=60_000, batch_size=256, epochs=60, delta=1e-5,
        ...     learning_rate=0.15,
        ... )
        >>> round(optimizer.mechanism.noise_multiplier, 2)
        1.01
        """
