"""One private training, from settings to a fitted model with its epsilon."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext._compat import keras_internals
from keras_dp_ext.accounting import (
    Claim,
    FullBatch,
    GaussianRelease,
    TrainingPlan,
    calibration,
)
from keras_dp_ext.accounting.default_delta import default_delta
from keras_dp_ext.callbacks import PrivacyAccountant
from keras_dp_ext.cli._arguments import option_name
from keras_dp_ext.cli._settings import DEFAULT_ROWS, Settings
from keras_dp_ext.data import (
    DataSet,
    PrivateNormalization,
    PrivatePCA,
    cyclic_poisson_batches,
    fixed_order_batches,
    load,
    poisson_batches,
)
from keras_dp_ext.data.layers.privately_adapted import PrivatelyAdapted
from keras_dp_ext.mechanisms import describe
from keras_dp_ext.optimizers import AdamBC, make_private
from keras_dp_ext.presets import Recipe, build_model, find_recipe, with_features

# The share of the target that a layer may spend by itself, and the least noise that it
# needs. Abadi et al. gave the PCA (sigma at epsilon) = (16, 0.5), (7, 2), (4, 8). Means
# are found with much noise, so that all of them cost little.
_SHARES: dict[type[PrivatelyAdapted], tuple[float, float]] = {
    PrivatePCA: (0.3, 4.0),
    PrivateNormalization: (0.1, 10.0),
}


def load_data(settings: Settings) -> DataSet:
    """The data set, as the model of the settings takes it."""
    data = load(
        settings.dataset, settings.data_dir, settings.target, settings.user_column
    )
    model = find_recipe(data.name, settings.model, settings.mechanism).model
    return with_features(model, data, settings.cache_dir)


class Experiment:
    """A model, its data and its privacy, ready to be fitted.

    Args:
        settings: What to do.
        data: The data set.
        model: A model to continue with, compiled with a private optimizer; by
            default a new one is made.

    Attributes:
        model: The compiled model.
        accountant: The `PrivacyAccountant` that watches it.
        noise_multiplier: Noise over the L2 norm of one example.
        recipe: The recipe, with the settings put in.
    """

    def __init__(
        self, settings: Settings, data: DataSet, model: keras.Model | None = None
    ):
        self.settings = settings
        self.data = data
        recipe = find_recipe(
            data.name, settings.model, settings.mechanism, settings.budget
        )
        self.recipe = self._with_bands_that_fit(_with_settings(recipe, settings))
        self.lots = self._lots()
        self.delta = settings.delta or default_delta(self.lots.dp_sampling.num_examples)
        self.steps_per_epoch = self.lots.dp_sampling.steps_per_epoch
        self.model = self._new_model() if model is None else model
        self.accountant = PrivacyAccountant(
            delta=self.delta,
            target_epsilon=settings.budget,
            accountant=self.recipe.accountant,
        )

    def _with_bands_that_fit(self, recipe: Recipe) -> Recipe:
        """As many bands as there are groups of examples, each of which has to fill a lot.

        Only where lots are drawn from groups that take turns, and nobody says how many.
        """
        mechanism = describe.mechanism_class(self.settings.mechanism)
        own = recipe.mechanism_arguments
        if mechanism.default_sampling != "cyclic-poisson" or "bands" in own:
            return recipe
        ids = self.data.user_ids
        drawn = len(self.data.x_train if ids is None else np.unique(ids))
        bands = max(1, min(mechanism().cycle, drawn // recipe.batch_size))
        return dataclasses.replace(recipe, mechanism_arguments={**own, "bands": bands})

    def _lots(self) -> Any:
        """The data, drawn as the mechanism needs it."""
        mechanism = describe.mechanism_class(self.settings.mechanism)
        arguments: dict[str, Any] = {
            "batch_size": self.recipe.batch_size,
            "accumulation_steps": self.settings.accumulation_steps,
        }
        sampled = poisson_batches
        if mechanism.default_sampling == "cyclic-poisson":
            sampled = cyclic_poisson_batches
            arguments["cycle"] = mechanism(**self._arguments_at(1.0)).cycle
        elif mechanism.default_sampling == "fixed-order":
            sampled = fixed_order_batches
        if self.data.user_ids is not None:
            arguments["user_ids"] = self.data.user_ids
            arguments["examples_per_user"] = (
                self.settings.examples_per_user or DEFAULT_ROWS
            )
        targets = self.data.y_train.astype(np.int32)
        return sampled(self.data.x_train, targets, **arguments)

    def _planned_arguments(self) -> dict[str, Any]:
        """What the mechanism makes of the length of the training."""
        label = self.lots.dp_sampling
        mechanism = describe.mechanism_class(self.settings.mechanism)
        plan = TrainingPlan(
            label.num_examples,
            label.expected_batch_size,
            steps=self.steps_per_epoch * self.recipe.epochs,
            sampling=mechanism.default_sampling,
            cycle=getattr(label.sampling, "cycle", 1),
        )
        return mechanism.planned_arguments(plan)

    @property
    def noise_multiplier(self) -> float:
        """The noise of the gradients over the L2 norm of one example."""
        return self.model.optimizer.mechanism.noise_multiplier

    @property
    def epochs_done(self) -> int:
        """Complete epochs, by the optimizer's counter of releases."""
        return int(self.model.optimizer.releases.numpy()) // self.steps_per_epoch

    def fit(
        self, callbacks: Sequence[keras.callbacks.Callback] = (), verbose: Any = "auto"
    ) -> None:
        """Trains up to the recipe's number of epochs, or to the end of the budget."""
        self.model.fit(
            self.lots,
            epochs=self.recipe.epochs,
            initial_epoch=self.epochs_done,
            validation_data=(self.data.x_test, self.data.y_test.astype(np.int32)),
            validation_batch_size=1024,
            callbacks=[self.accountant, *callbacks],
            shuffle=False,
            verbose=verbose,
        )

    def test_accuracy(self) -> float:
        """Accuracy on the test set."""
        figures = self.model.evaluate(
            self.data.x_test,
            self.data.y_test.astype(np.int32),
            batch_size=1024,
            verbose=0,
            return_dict=True,
        )
        return float(figures["accuracy"])

    # Making the model -----------------------------------------------------

    def _new_model(self) -> keras.Model:
        if self.settings.seed is not None:
            keras.utils.set_random_seed(self.settings.seed)
        model = build_model(self.recipe.model, self.data)
        spent = self._adapt(model)
        arguments = self._mechanism_arguments(model, spent)
        optimizer = self._optimizer(arguments)
        # Weighted, so that padding does not count.
        model.compile(optimizer, loss=_loss(model), weighted_metrics=["accuracy"])
        optimizer.build(model.trainable_variables)
        return model

    def _adapt(self, model: keras.Model) -> list[PrivatelyAdapted]:
        """Adapts the layers that look at the data, privately; returns them."""
        layers = keras_internals.all_layers(model)  # Also those of models in the model.
        private = [layer for layer in layers if isinstance(layer, PrivatelyAdapted)]
        for layer in layers:
            adaptive = isinstance(layer, keras.layers.Normalization)
            if adaptive and layer.input_mean is None:
                raise ValueError(
                    f"Layer `{layer.name}` would hold mean and variance of the data "
                    "without noise. Use `dp.data.PrivateNormalization`, or pass public "
                    "constants: Normalization(mean=..., variance=...)."
                )
        with_pca = [layer for layer in private if isinstance(layer, PrivatePCA)]
        if len(with_pca) > 1:
            raise ValueError("A model can have one PrivatePCA layer. Received: several")
        if private and self.data.user_ids is not None:
            raise ValueError(
                f"{type(private[0]).__name__} protects single rows, and no epsilon "
                "covers these and people: leave out `--user-column`, or choose another "
                "`--model`."
            )
        if self.settings.pca_noise_multiplier is not None and not with_pca:
            raise ValueError(
                "Argument `--pca-noise-multiplier` applies to models with a PrivatePCA "
                f"layer only. Received: model {self.recipe.model}"
            )
        for layer in private:
            layer.noise_multiplier = self._layer_noise_multiplier(layer)
            layer.adapt(_inputs_of(layer, model, self.data.x_train))
        return private

    def _layer_noise_multiplier(self, layer: PrivatelyAdapted) -> float:
        given = self.settings.pca_noise_multiplier
        if given is not None and isinstance(layer, PrivatePCA):
            return float(given)
        if self.settings.budget is None:
            return layer.noise_multiplier
        share, least = _SHARES[type(layer)]
        sigma = calibration.calibrate_noise(
            GaussianRelease,
            FullBatch(),
            1,
            target_epsilon=share * self.settings.budget,
            delta=self.delta,
        )
        return max(sigma, least)

    def _mechanism_arguments(
        self, model: keras.Model, spent: Sequence[PrivatelyAdapted]
    ) -> dict[str, Any]:
        """The arguments of the mechanism, with its noise calibrated if need be."""
        num_parameters = sum(
            math.prod(variable.shape) for variable in model.trainable_variables
        )
        multiplier = self.settings.noise_multiplier
        if multiplier is None:
            label = self.lots.dp_sampling
            multiplier = calibration.calibrate_noise(
                lambda scale: self._claim(scale, num_parameters).proven,
                label.sampling,
                self.steps_per_epoch * self.recipe.epochs,
                target_epsilon=self.settings.budget,
                delta=self.delta,
                accountant=self.recipe.accountant,
                others=[(p.claim.proven, p.sampling, p.releases) for p in spent],
            )
        return self._arguments_at(multiplier)

    def _claim(self, multiplier: float, num_parameters: int) -> Claim:
        arguments = self._arguments_at(multiplier)
        return describe.claim(self.settings.mechanism, num_parameters, **arguments)

    def _arguments_at(self, multiplier: float) -> dict[str, Any]:
        """The mechanism's arguments with noise `multiplier` times the L2 norm."""
        own = describe.mechanism_class(self.settings.mechanism)
        planned = self._planned_arguments() if hasattr(self, "lots") else {}
        return own.arguments_at(
            multiplier, **{**planned, **self.recipe.mechanism_arguments}
        )

    def _optimizer(self, mechanism_arguments: dict[str, Any]) -> Any:
        recipe = self.recipe
        rate: Any = recipe.learning_rate
        if recipe.final_learning_rate is not None:
            rate = keras.optimizers.schedules.PolynomialDecay(
                initial_learning_rate=rate,
                decay_steps=self.steps_per_epoch * recipe.epochs,
                end_learning_rate=recipe.final_learning_rate,
            )
        return optimizer_class(self.settings.mechanism, recipe.optimizer)(
            learning_rate=rate,
            gradient_accumulation_steps=self.settings.accumulation_steps,
            **recipe.optimizer_arguments,
            **mechanism_arguments,
        )


def optimizer_class(mechanism: str, optimizer: str) -> type:
    """The private optimizer class of a mechanism on top of a Keras optimizer.

    Args:
        mechanism: Name of the mechanism.
        optimizer: Name of a class in `keras.optimizers`, or "AdamBC".

    Raises:
        ValueError: If Keras has no such optimizer.
    """
    ours = {"AdamBC": AdamBC}
    base = ours.get(optimizer) or getattr(keras.optimizers, optimizer, None)
    abstract = keras.optimizers.Optimizer
    if not (inspect.isclass(base) and issubclass(base, abstract) and base != abstract):
        raise ValueError(
            "Argument `--optimizer` must be a class in keras.optimizers, such as SGD "
            f"or Adam, or AdamBC. Received: {optimizer}"
        )
    return make_private(base, describe.mechanism_class(mechanism))


def _inputs_of(layer: keras.layers.Layer, model: keras.Model, x: np.ndarray) -> Any:
    """The data as it reaches a layer: through what comes before it in the model."""
    if layer not in model.layers or layer is model.layers[0]:
        return x
    before = keras.Model(model.inputs, layer.input)
    if before.layers[1:] == []:
        return x
    batches = tf.data.Dataset.from_tensor_slices(x).batch(1024)
    return batches.map(lambda rows: before(rows, training=False))


def _with_settings(recipe: Recipe, settings: Settings) -> Recipe:
    """The recipe, with everything that was asked for put in."""
    changes: dict[str, Any] = {
        name: getattr(settings, name)
        for name in (
            *("epochs", "batch_size", "learning_rate", "optimizer"),
            "accountant",
        )
        if getattr(settings, name) is not None
    }
    if settings.learning_rate is not None and recipe.final_learning_rate is not None:
        ratio = recipe.final_learning_rate / recipe.learning_rate
        changes["final_learning_rate"] = ratio * settings.learning_rate
    if changes.get("optimizer", recipe.optimizer) != recipe.optimizer:
        changes["optimizer_arguments"] = {}
    return dataclasses.replace(
        recipe, mechanism_arguments=_mechanism_arguments(recipe, settings), **changes
    )


def _mechanism_arguments(recipe: Recipe, settings: Settings) -> dict[str, Any]:
    """All arguments of the mechanism but its noise."""
    own = describe.mechanism_class(settings.mechanism)
    known = own.argument_names()
    # What a recipe says is a suggestion, made with some mechanism in mind.
    accepted = {*known, *inspect.signature(own.arguments_at).parameters}
    arguments = {k: v for k, v in recipe.mechanism_arguments.items() if k in accepted}
    for name in ("l2_norm_clip", "noise"):
        value = getattr(settings, name)
        if value is not None and name not in accepted:
            raise ValueError(
                f"Argument `{option_name(name)}` does not apply to "
                f"{settings.mechanism}."
            )
        if value is not None:
            arguments[name] = value
    for name in settings.options:
        if name not in known:
            raise ValueError(
                f"Argument `--set` must name an argument of {settings.mechanism}: "
                f"{', '.join(known)}. Received: {name}"
            )
    return {**arguments, **settings.options}


def _loss(model: keras.Model) -> keras.losses.Loss:
    """Cross-entropy of the logits, or of the probabilities that a softmax gives."""
    activation = getattr(model.layers[-1], "activation", None)
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=activation is not keras.activations.softmax
    )
