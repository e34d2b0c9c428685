"""Bounds that look at every coordinate get rows, and a wrong row is caught."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.accounting.sensitivity import L2Sensitivity
from keras_dp_ext.gradients import contributions, joined, lazy_gradients, packed
from keras_dp_ext.gradients.base import WeightedRows
from keras_dp_ext.gradients.rules.convolution import filter_gradients, patch_products
from keras_dp_ext.verification import probe
from tests.verification.random_models import WeightNormalizedDense

L = keras.layers

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def nothing_has_passed(monkeypatch):
    monkeypatch.setattr(probe, "_passed", set())


class UsedTwice(L.Layer):
    """A weight that meets data in a product and in a sum: two forms of gradients."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 4), name="kernel")

    def call(self, x):
        return x @ self.kernel + x[:, :1] * self.kernel[:1] ** 2


class CumulativeProducts(L.Layer):
    """An op for whose weight there is no rule."""

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1],), name="w", initializer="ones")

    def call(self, x):
        return tf.math.cumprod(x * self.w + 1.0, axis=1) + tf.math.igammac(
            tf.abs(x) + 1.0, tf.abs(x * 0.1) + tf.abs(self.w)
        )


def by_a_thousandth(rows):
    return 1.001 * rows


def of_the_neighbour(rows):
    return tf.roll(rows, 1, axis=0)


def with_a_trace_of_the_neighbour(rows):
    return rows + 1e-3 * tf.roll(rows, 1, axis=0)


FAULTS = [by_a_thousandth, of_the_neighbour, with_a_trace_of_the_neighbour]


def in_method(cls):
    def sabotage(monkeypatch, fault):
        rows = cls.rows
        monkeypatch.setattr(cls, "rows", lambda self: fault(rows(self)))

    return sabotage


def in_packing(monkeypatch, fault):
    unpack = packed.PackedContributions.unpack

    def wrong(self, values, is_rows=False):
        found = unpack(self, values, is_rows)
        return [None if v is None else fault(v) for v in found] if is_rows else found

    monkeypatch.setattr(packed.PackedContributions, "unpack", wrong)


def in_joining(monkeypatch, fault):
    join = joined.JoinedRows.join
    monkeypatch.setattr(
        joined.JoinedRows, "join", lambda self, rows: list(map(fault, join(self, rows)))
    )


def in_slicing(monkeypatch, fault):
    """Of the gradients only: what belongs to them stays as it is."""
    sliced = contributions.Contribution.sliced

    def wrong(self, start, size):
        part = sliced(self, start, size)
        return contributions.Rows(fault(part.rows()), self.shape)

    monkeypatch.setattr(contributions.Contribution, "sliced", wrong)


DENSE = lambda: [keras.Input([6]), L.Dense(5, activation="tanh")]  # noqa: E731
DEEP = lambda: [keras.Input([6]), *(L.Dense(5) for _ in range(9))]  # noqa: E731

KINDS = {
    "dense": (DENSE, in_method(contributions.OuterProducts)),
    "convolution": (
        lambda: [keras.Input([7, 7, 2]), L.Conv2D(3, 3), L.Flatten()],
        in_method(filter_gradients.FilterGradients),
    ),
    "embedding": (
        lambda: [keras.Input([4], dtype="int32"), L.Embedding(9, 3), L.Flatten()],
        in_method(contributions.Lookups),
    ),
    "a function of a weight": (
        lambda: [keras.Input([6]), WeightNormalizedDense(5)],
        in_method(contributions.Mapped),
    ),
    "a shared weight": (
        lambda: [keras.Input([6]), UsedTwice()],
        in_method(contributions.Total),
    ),
    "a loop": (
        lambda: [keras.Input([5, 3]), L.LSTM(4)],
        in_method(contributions.OuterProducts),
    ),
    "no rule": (
        lambda: [keras.Input([6]), CumulativeProducts()],
        in_method(contributions.Rows),
    ),
    "packed": (DEEP, in_packing),
    "sliced": (DENSE, in_slicing),
}


def l1_clip():
    return dp.optimizers.make_private(
        keras.optimizers.SGD,
        bound=dp.bounding.L1Clip(1.0),
        noise=dp.noise.Laplace(1.0),
        learning_rate=0.1,
    )


OPTIMIZERS = {
    "tanh": lambda: dp.optimizers.TanhSGD(),
    "encoding": lambda: dp.optimizers.EncodedSGD(),
    "L1 clip": l1_clip,
    "AdaClip": lambda: dp.optimizers.AdaClipSGD(),
}


def fit(layers, optimizer, is_static=False, jit_compile=False):
    model = keras.Sequential([*layers, L.Dense(2)])
    shape = model.input_shape[1:]
    generator = np.random.default_rng(0)
    if model.inputs[0].dtype == "int32":
        x = generator.integers(0, 9, (8, *shape)).astype("int32")
    else:
        x = generator.normal(size=(8, *shape)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, np.zeros((8, 2), "float32")))
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    before = model.get_weights()
    try:
        model.fit(data.batch(8, drop_remainder=is_static), verbose=0)
    except ValueError:
        for old, new in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)
        raise
    return model


def optimizer_for(kind):
    """Small variables are unpacked for bounds that get one tensor for each."""
    return OPTIMIZERS["L1 clip" if kind == "packed" else "tanh"]()


@pytest.mark.parametrize("kind", KINDS)
def test_right_rows_pass(kind):
    layers, _ = KINDS[kind]
    assert int(fit(layers(), optimizer_for(kind)).optimizer.releases) == 1


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_row_is_caught(kind, fault, monkeypatch):
    layers, sabotage = KINDS[kind]
    sabotage(monkeypatch, fault)
    with pytest.raises(ValueError, match="are wrong"):
        fit(layers(), optimizer_for(kind))


WIDE = lambda: [keras.Input([80]), L.Dense(60)]  # noqa: E731


@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("fault", [None, *FAULTS])
@pytest.mark.parametrize("name", ["tanh", "encoding"])
def test_a_wrong_factor_of_a_product_is_caught(name, fault, is_static, monkeypatch):
    """The bound multiplies the factors itself: the probe, those very factors."""
    if fault is None:
        assert int(fit(WIDE(), OPTIMIZERS[name](), is_static).optimizer.releases) == 1
        return
    outer_rows = contributions.OuterProducts.outer_rows

    def wrong(self):
        found = outer_rows(self)
        return found._replace(left=fault(found.left))

    monkeypatch.setattr(contributions.OuterProducts, "outer_rows", wrong)
    with pytest.raises(ValueError, match="are wrong"):
        fit(WIDE(), OPTIMIZERS[name](), is_static)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_wrong_row_is_caught_for_every_bound_that_uses_rows(
    name, is_static, fault, monkeypatch
):
    in_method(contributions.OuterProducts)(monkeypatch, fault)
    with pytest.raises(ValueError, match="are wrong"):
        fit(DENSE(), OPTIMIZERS[name](), is_static)


@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_row_among_joined_ones_is_caught(fault, is_static, monkeypatch):
    in_joining(monkeypatch, fault)
    with pytest.raises(ValueError, match="are wrong"):
        fit(DEEP(), OPTIMIZERS["encoding"](), is_static)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_row_is_caught_under_xla(fault, monkeypatch):
    in_method(patch_products.PatchProducts)(monkeypatch, fault)
    layers, _ = KINDS["convolution"]
    with pytest.raises(ValueError, match="are wrong"):
        fit(layers(), OPTIMIZERS["tanh"](), True, jit_compile=True)


def test_a_chunk_further_down_the_batch_is_tested_too(monkeypatch):
    """Few rows of made-up data are one chunk; those of a real batch are not."""
    sliced = contributions.Contribution.sliced
    monkeypatch.setattr(
        contributions.Contribution,
        "sliced",
        lambda self, start, size: sliced(self, tf.maximum(start - 1, 0), size),
    )
    with pytest.raises(ValueError, match="are wrong"):
        fit(DENSE(), OPTIMIZERS["tanh"]())


def test_a_row_that_is_in_two_chunks_is_caught(monkeypatch):
    """Eight rows in chunks of three: the last one begins early."""
    finite_only = lazy_gradients._finite_only

    def optimizer():
        return dp.optimizers.TanhSGD(chunk_bytes=3 * 4 * (6 * 5 + 5 + 5 * 2 + 2))

    assert int(fit(DENSE(), optimizer(), True).optimizer.releases) == 1
    monkeypatch.setattr(
        lazy_gradients, "_finite_only", lambda parts, keep: finite_only(parts, None)
    )
    with pytest.raises(ValueError, match="are wrong"):
        fit(DENSE(), optimizer(), True)


@dataclasses.dataclass(frozen=True)
class InABranch(dp.bounding.Bound):
    """Rows that are made where the probe cannot run them."""

    def sum(self, gradients):
        def clamped():
            return gradients.sum_of(
                lambda rows: [tf.clip_by_value(row, -1.0, 1.0) for row in rows]
            )

        def zeros():
            return [tf.zeros(shape) for shape in gradients.shapes]

        return tf.cond(gradients.num_rows > 0, clamped, zeros)

    def sensitivity(self, num_parameters):
        return L2Sensitivity(num_parameters**0.5)


@dataclasses.dataclass(frozen=True)
class NormsBesideRows(dp.bounding.Bound):
    """A clip that does by rows what others do by coefficients."""

    def sum(self, gradients):
        norms = tf.sqrt(gradients.norm_squared())
        largest = tf.reduce_max(tf.where(norms < 1.0, norms, 1.0))

        def clipped(rows):
            squares = [
                tf.reduce_sum(row**2, axis=list(range(1, row.shape.rank)))
                for row in rows
            ]
            shrink = tf.minimum(1.0, tf.math.rsqrt(tf.add_n(squares)))
            return WeightedRows(rows, shrink + 0.0 * largest)

        return gradients.sum_of(clipped, result_shapes=gradients.shapes)

    def sensitivity(self, num_parameters):
        return L2Sensitivity(1.0)


@pytest.mark.parametrize("bound", [InABranch(), NormsBesideRows()])
@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_rows_of_other_peoples_bounds_are_tested(bound, fault, monkeypatch):
    def optimizer():
        return dp.optimizers.make_private(
            keras.optimizers.SGD, bound=bound, noise=dp.noise.Gaussian(1.0)
        )

    if fault is None:
        assert int(fit(DENSE(), optimizer()).optimizer.releases) == 1
        return
    in_method(contributions.OuterProducts)(monkeypatch, fault)
    with pytest.raises(ValueError, match="are wrong"):
        fit(DENSE(), optimizer())
