"""What the scripts of the zoo share: tiny data, a tiny model, one way to fit."""

import dataclasses
from collections.abc import Callable, Sequence

import keras
import numpy as np

import keras_dp_ext as dp

FEATURES = 3
LOT = 6
# With and without one example the same number of lots make an epoch.
ROWS = 22


@dataclasses.dataclass(frozen=True)
class Case:
    """A training script, and what is to become of it.

    Attributes:
        train: The script.
        expects: "within" its claim; "refused" with an error that matches `match`;
            "warned" by a warning or a statement that matches it; "found" by the
            audit only, since no library can see what Python does with the data.
        match: What the message names.
        wrong: What a library that gets it wrong would show.
        data: Makes the data.
        examples: Which worst examples are tried; see `dp.audit.worst_examples`.
        adjacency: See `dp.audit.audit_fit`.
        fails: Why today's library fails the case, or `None`.
        slow: Whether it takes long.
    """

    train: Callable
    expects: str
    match: str | None
    wrong: str
    data: Callable[[], tuple[np.ndarray, ...]]
    examples: Sequence[str]
    adjacency: str
    fails: str | None
    slow: bool

    @property
    def name(self):
        return self.train.__name__

    @property
    def theme(self):
        return self.train.__module__.rsplit(".", 1)[-1]


CASES: list[Case] = []

#: What errors about examples that meet say.
MIXES = (
    r"mix(es)? the examples of a batch: .*op `|one loss for each row|is wrong|are wrong"
)


def case(
    expects,
    match=None,
    *,
    wrong,
    data=None,
    examples=("huge",),
    adjacency="remove",
    fails=None,
    slow=False,
):
    """Registers a script. It is called with the data, and returns its model."""

    def register(train):
        CASES.append(
            Case(
                train,
                expects,
                match,
                wrong,
                data or numbers,
                examples,
                adjacency,
                fails,
                slow,
            )
        )
        return train

    return register


def numbers():
    """`[22, 3]` inputs and `[22, 1]` targets."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=[ROWS, FEATURES]).astype("float32")
    return x, np.tanh(x[:, :1] - x[:, 1:2])


def classes():
    """The same inputs with labels 0, 1, 2."""
    x, _ = numbers()
    return x, np.argmax(x, axis=1)


def tokens():
    """Sequences of six tokens, 0 for padding at their ends, and a number for each."""
    rng = np.random.default_rng(5)
    x = rng.integers(1, 10, size=[ROWS, 6])
    x[rng.random(x.shape) < 0.2] = 0
    x = -np.sort(-x, axis=1)
    return x, (x[:, :1] / 10).astype("float32")


def dense(units=1, activation=None):
    return keras.Sequential(
        [
            keras.Input([FEATURES]),
            keras.layers.Dense(4, activation="tanh"),
            keras.layers.Dense(units, activation),
        ]
    )


def functional(make_output):
    """A model of `make_output(inputs)`."""
    inputs = keras.Input([FEATURES])
    return keras.Model(inputs, make_output(inputs))


def private(**arguments):
    return dp.optimizers.DPSGD(
        **{"learning_rate": 0.1, "noise_multiplier": 1.0, **arguments}
    )


def lots(x, y, **arguments):
    return dp.data.poisson_batches(x, y, batch_size=LOT, **arguments)


def accountant(**arguments):
    return dp.callbacks.PrivacyAccountant(delta=1e-2, **arguments)


def fit(model, *data, callbacks=(), **arguments):
    """As users call it, with an accountant."""
    model.fit(*data, verbose=0, callbacks=[accountant(), *callbacks], **arguments)
    return model


def train(model, x, y, optimizer=None, loss="mse", **arguments):
    """Compiles the model and fits it to Poisson lots."""
    model.compile(optimizer or private(), loss, **arguments)
    return fit(model, lots(x, y))
