"""Callbacks that act on what they see of the training data."""

import keras
import numpy as np

from tests.zoo import kit
from tests.zoo.kit import case


def _compiled():
    model = kit.dense()
    model.compile(kit.private(), "mse")
    return model


@case(
    "warned",
    "ReduceLROnPlateau",
    wrong="the learning rate follows the exact training loss",
)
def plateau_of_the_training_loss(x, y):
    plateau = keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=0)
    return kit.fit(_compiled(), kit.lots(x, y), epochs=3, callbacks=[plateau])


@case(
    "warned",
    "EarlyStopping",
    wrong="the exact training loss chooses among the weights",
)
def best_weights_by_training_loss(x, y):
    stopping = keras.callbacks.EarlyStopping(
        monitor="loss", patience=0, restore_best_weights=True
    )
    return kit.fit(_compiled(), kit.lots(x, y), epochs=3, callbacks=[stopping])


@case(
    "warned",
    "ModelCheckpoint",
    wrong="the exact training loss chooses among the files",
)
def best_file_by_training_loss(x, y):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        keeper = keras.callbacks.ModelCheckpoint(
            f"{folder}/best.keras", monitor="loss", save_best_only=True
        )
        return kit.fit(_compiled(), kit.lots(x, y), epochs=2, callbacks=[keeper])


@case(
    "within",
    wrong="a schedule of the epoch's number is refused",
    examples=["huge"],
)
def schedule_by_the_epoch(x, y):
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
    return kit.fit(_compiled(), kit.lots(x, y), epochs=2, callbacks=[schedule])


class CopiesMeans(keras.callbacks.Callback):
    """Writes statistics of the data into the model, in plain Python."""

    def __init__(self, x):
        super().__init__()
        self.x = x

    def on_epoch_end(self, epoch, logs=None):
        self.model.layers[-1].bias.assign(np.nan_to_num(self.x).mean(keepdims=True)[0])


@case("found", "bias", wrong="the mean of the data is the bias")
def callback_that_reads_the_data(x, y):
    return kit.fit(_compiled(), kit.lots(x, y), callbacks=[CopiesMeans(x)])


class FollowsLoss(keras.callbacks.Callback):
    """A learning rate schedule of one's own, by the training loss."""

    def on_epoch_end(self, epoch, logs=None):
        self.model.optimizer.learning_rate.assign(float(logs["loss"]))


@case(
    "found",
    "learning_rate",
    wrong="the exact loss is the learning rate",
    examples=["huge"],
)
def learning_rate_by_the_logs(x, y):
    return kit.fit(_compiled(), kit.lots(x, y), callbacks=[FollowsLoss()])


class StopsAbove(keras.callbacks.Callback):
    """Ends the training once the loss is high."""

    def on_train_batch_end(self, batch, logs=None):
        if logs["loss"] > 100:
            self.model.stop_training = True


@case(
    "found",
    "number of releases",
    wrong="the exact loss ends the training",
    examples=["huge"],
)
def stops_by_the_logs(x, y):
    model = keras.Sequential([keras.Input([kit.FEATURES]), keras.layers.Dense(1)])
    model.compile(kit.private(), "mse")
    return kit.fit(model, kit.lots(x, y), epochs=2, callbacks=[StopsAbove()])


class LessNoise(keras.callbacks.Callback):
    """Lowers the noise while nobody looks."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch:
            self.model.optimizer.mechanism.noise_multiplier = 0.01


@case("refused", "noise_multiplier", wrong="the ledger keeps the former noise")
def noise_lowered_by_a_callback(x, y):
    return kit.fit(_compiled(), kit.lots(x, y), epochs=2, callbacks=[LessNoise()])


class LargerClip(keras.callbacks.Callback):
    """Raises the clip norm after the step was traced."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch:
            self.model.optimizer.mechanism.l2_norm_clip = 100.0


@case("refused", "l2_norm_clip", wrong="the ledger keeps the former clip norm")
def clip_raised_by_a_callback(x, y):
    return kit.fit(_compiled(), kit.lots(x, y), epochs=2, callbacks=[LargerClip()])


class ForgetsLedger(keras.callbacks.Callback):
    """Sets the counter of releases back."""

    def on_epoch_end(self, epoch, logs=None):
        self.model.optimizer.releases.assign(0)


@case("found", "releases", wrong="epsilon of the last epoch only", examples=["huge"])
def counter_set_back_by_a_callback(x, y):
    return kit.fit(_compiled(), kit.lots(x, y), epochs=2, callbacks=[ForgetsLedger()])
