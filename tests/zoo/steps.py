"""Training steps of one's own: several updates, several optimizers, other steps."""

import keras
import tensorflow as tf

from tests.zoo import kit
from tests.zoo.kit import case


def _update(model, optimizer, losses, variables):
    """What `train_step` does with a private optimizer."""
    optimizer.scale_loss(tf.reduce_mean(losses))
    optimizer.apply_gradients([(None, variable) for variable in variables])


class Repeats(keras.Model):
    """Updates `times` times on each lot."""

    times = 2

    def train_step(self, data):
        x, y, weight = data
        for _ in range(self.times):
            losses = weight * keras.losses.mean_squared_error(y, self(x))
            _update(self, self.optimizer, losses, self.trainable_variables)
        return {"loss": tf.reduce_mean(losses)}


class Critic(Repeats):
    """Five updates to one of the generator, as in WGAN."""

    times = 5


_AMPLIFIED = "each update on a lot is amplified as if it had a lot of its own"


def _of(kind):
    inputs = keras.Input([kit.FEATURES])
    return kind(inputs, keras.layers.Dense(1)(inputs))


@case("within", wrong=_AMPLIFIED)
def updates_twice_per_lot(x, y):
    return kit.train(_of(Repeats), x, y, loss=None)


@case(
    "within",
    wrong=_AMPLIFIED,
    examples=["huge"],
)
def critic_with_five_updates(x, y):
    return kit.train(_of(Critic), x, y, loss=None)


@case(
    "within",
    wrong=_AMPLIFIED,
    examples=["huge"],
)
def updates_twice_per_lot_under_xla(x, y):
    return kit.train(_of(Repeats), x, y, loss=None, jit_compile=True)


class Gan(keras.Model):
    """A generator and a discriminator, each with an optimizer of its own."""

    def __init__(self, second):
        super().__init__()
        self.generator = keras.Sequential([keras.Input([2]), keras.layers.Dense(3)])
        self.discriminator = keras.Sequential(
            [keras.Input([kit.FEATURES]), keras.layers.Dense(1)]
        )
        self.second = second
        self.seeds = keras.random.SeedGenerator(1)
        self.built = True

    def call(self, x):
        return self.discriminator(x)

    def train_step(self, data):
        x, _, weight = data
        fake = self.generator(keras.random.normal([x.shape[0], 2], seed=self.seeds))
        real, made_up = self.discriminator(x), self.discriminator(fake)
        losses = weight * (tf.nn.softplus(-real) + tf.nn.softplus(made_up))[:, 0]
        _update(self, self.optimizer, losses, self.discriminator.trainable_variables)
        fooled = weight * tf.nn.softplus(-self.discriminator(fake) * x[:, :1])[:, 0]
        _update(self, self.second, fooled, self.generator.trainable_variables)
        return {"loss": tf.reduce_mean(losses)}


@case(
    "within",
    wrong="the second optimizer's releases are in no ledger",
    examples=["huge"],
)
def gan_with_two_private_optimizers(x, y):
    return kit.train(Gan(kit.private(noise_multiplier=0.5)), x, y, loss=None)


class TwoHeads(keras.Model):
    """Two heads on two sets of weights, each with its own optimizer."""

    def __init__(self, second):
        super().__init__()
        self.first_head, self.second_head = kit.dense(), kit.dense()
        self.second = second
        self.built = True

    def call(self, x):
        return self.first_head(x)

    def train_step(self, data):
        x, y, weight = data
        for head, optimizer in (
            (self.first_head, self.optimizer),
            (self.second_head, self.second),
        ):
            losses = weight * keras.losses.mean_squared_error(y, head(x))
            _update(self, optimizer, losses, head.trainable_variables)
        return {"loss": tf.reduce_mean(losses)}


@case(
    "within",
    wrong="the second optimizer's releases are in no ledger",
    examples=["huge"],
)
def two_heads_two_private_optimizers(x, y):
    return kit.train(TwoHeads(kit.private()), x, y, loss=None)


class Unprivate(keras.Model):
    """Lets an ordinary optimizer update some of the weights, too."""

    def __init__(self, same_weights):
        super().__init__()
        self.first_head, self.second_head = kit.dense(), kit.dense()
        self.ordinary = keras.optimizers.SGD(0.1)
        self.same_weights = same_weights
        self.built = True

    def call(self, x):
        return self.first_head(x)

    def train_step(self, data):
        x, y, weight = data
        losses = weight * keras.losses.mean_squared_error(y, self.first_head(x))
        variables = self.first_head.trainable_variables
        _update(self, self.optimizer, losses, variables)
        head = self.first_head if self.same_weights else self.second_head
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.mean_squared_error(y, head(x)))
        gradients = tape.gradient(loss, head.trainable_variables)
        self.ordinary.apply_gradients(
            zip(gradients, head.trainable_variables, strict=True)
        )
        return {"loss": loss}


@case("refused", "kernel|bias", wrong="exact gradients reach the same weights")
def ordinary_optimizer_on_the_same_weights(x, y):
    return kit.train(Unprivate(True), x, y, loss=None)


@case("refused", "kernel|bias", wrong="exact gradients reach other weights")
def ordinary_optimizer_on_other_weights(x, y):
    return kit.train(Unprivate(False), x, y, loss=None)


class SkipsNaN(keras.Model):
    """Updates only where the loss is a number."""

    def train_step(self, data):
        x, y, weight = data
        losses = weight * keras.losses.mean_squared_error(y, self(x))
        loss = tf.reduce_mean(losses)

        def update():
            losses = weight * keras.losses.mean_squared_error(y, self(x))
            _update(self, self.optimizer, losses, self.trainable_variables)
            return loss

        tf.cond(tf.math.is_finite(loss), update, lambda: loss)
        return {"loss": loss}


@case(
    "refused",
    "cond|branch|condition|whether",
    wrong="one NaN decides whether there is an update at all",
)
def skips_the_update_where_the_loss_is_nan(x, y):
    return kit.train(_of(SkipsNaN), x, y, loss=None)


class WithTape(keras.Model):
    """Hands exact gradients to the private optimizer."""

    def train_step(self, data):
        x, y, weight = data
        with tf.GradientTape() as tape:
            losses = weight * keras.losses.mean_squared_error(y, self(x))
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(
            zip(gradients, self.trainable_variables, strict=True)
        )
        return {"loss": loss}


@case("refused", "loss of each example", wrong="gradients of the batch, unclipped")
def gradients_of_the_whole_batch(x, y):
    return kit.train(_of(WithTape), x, y, loss=None)


class Halves(keras.Model):
    """Two updates on one lot, each on half of its rows."""

    def train_step(self, data):
        x, y, weight = data
        half = x.shape[0] // 2
        for rows in (slice(None, half), slice(half, None)):
            losses = weight[rows] * keras.losses.mean_squared_error(
                y[rows], self(x[rows])
            )
            _update(self, self.optimizer, losses, self.trainable_variables)
        return {"loss": tf.reduce_mean(losses)}


@case(
    "refused",
    "one loss for each row",
    wrong="halves of one lot count as lots of their own",
)
def updates_on_halves_of_a_lot(x, y):
    return kit.train(_of(Halves), x, y, loss=None)


@case(
    "within",
    wrong="steps of several models are in one of the two ledgers only",
    examples=["huge"],
)
def two_models_trained_in_turns_on_the_same_lots(x, y):
    """The second model's releases never reach the first one's ledger."""
    first, second = kit.dense(), kit.dense()
    for model in (first, second):
        model.compile(kit.private(), "mse")
    lots = kit.lots(x, y)
    kit.fit(first, lots)
    kit.fit(second, lots)
    # Both are published; each statement speaks of its own model.
    return [first, second]
