"""Random programs: what the analysis claims about a tensor must be true of its values.

For every tensor of a random program: a constant must not move with the data, and with
some examples replaced, by ordinary numbers, NaN or infinity, the entries of all others
must stay what they are. Sizes are chosen so that axes are easily taken for each other.
"""

import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.verification.row_analysis import transfer  # noqa: F401
from keras_dp_ext.verification.row_analysis.frame import Frame
from keras_dp_ext.verification.row_analysis.sizes import Size
from keras_dp_ext.verification.row_analysis.values import Kind, Value

OPS_PER_PROGRAM = 14

# Numbers that are no part of the graph.
ONE, TWO = tf.Variable(1), tf.Variable(2)
ORDER = tf.Variable([1, 0])
MOST_ENTRIES = 3000


def value_of_size(size, known):
    """A number; `None` if a name is not among `known`."""
    if not isinstance(size, Size):
        return size
    total = 0
    for unknowns, coefficient in size.terms.items():
        for unknown in unknowns:
            if unknown.name not in known:
                return None
            coefficient *= known[unknown.name]
        total += coefficient
    return total


# Random steps: each takes a generator and the tensors so far, and gives a tensor. ------


def _axis(g, x):
    return int(g.integers(0, x.shape.rank))


def _some_axes(g, x):
    return [n for n in range(x.shape.rank) if g.random() < 0.4] or [_axis(g, x)]


def _unary(g, x, pool):
    ops = [tf.tanh, tf.nn.relu, tf.abs, tf.identity, tf.zeros_like, tf.math.is_nan]
    return tf.cast(ops[g.integers(len(ops))](x), tf.float32)


def _binary(g, x, pool):
    ops = [tf.add, tf.multiply, tf.maximum, tf.subtract, tf.math.divide_no_nan]
    y = pool[g.integers(len(pool))]
    if g.random() < 0.3:
        return tf.where(x > y, x, y)
    return ops[g.integers(len(ops))](x, y)


def _reduce(g, x, pool):
    ops = [tf.reduce_sum, tf.reduce_max, tf.reduce_mean]
    axes = _some_axes(g, x)
    if g.random() < 0.5:
        axes = [axis - x.shape.rank for axis in axes]
    return ops[g.integers(len(ops))](x, axis=axes, keepdims=bool(g.integers(2)))


def _along(g, x, pool):
    axis = _axis(g, x)
    ops = [
        lambda: tf.cumsum(x, axis, exclusive=True),
        lambda: tf.reverse(x, [axis]),
        lambda: tf.roll(x, 1, axis),
        lambda: tf.roll(x, ONE, axis),
        lambda: tf.reduce_max(x, axis=ONE, keepdims=True) + x,
        lambda: tf.reverse(x, [ONE]),
        lambda: tf.sort(x, axis=axis),
        lambda: tf.cast(tf.argmax(x, axis), tf.float32),
        lambda: tf.nn.softmax(x, axis),
        lambda: tf.nn.log_softmax(x),
        lambda: tf.math.top_k(x, 1)[0],
        lambda: tf.nn.l2_normalize(x, axis),
        lambda: tf.one_hot(tf.cast(tf.argmax(x, axis), tf.int32), 3, axis=axis),
    ]
    return ops[g.integers(len(ops))]()


def _transpose(g, x, pool):
    return tf.transpose(x, g.permutation(x.shape.rank))


def _reshape(g, x, pool):
    """To a random shape of numbers and of sizes that the graph computes."""
    sizes = tf.unstack(tf.shape(x))
    kind = g.integers(6)
    if kind == 5:
        return tf.reshape(x, [*sizes[:-1], TWO, -1])
    if kind == 0 and len(sizes) > 1:
        n = int(g.integers(len(sizes) - 1))
        return tf.reshape(x, [*sizes[:n], sizes[n] * sizes[n + 1], *sizes[n + 2 :]])
    if kind == 1:
        n = _axis(g, x)
        part = int(g.integers(2, 4))
        parts = [sizes[n] // part, part][:: int(g.choice([1, -1]))]
        return tf.reshape(x, [*sizes[:n], *parts, *sizes[n + 1 :]])
    if kind == 2:
        return tf.reshape(x, [-1, *[sizes[n] for n in _some_axes(g, x)]])
    if kind == 3:
        return tf.reshape(x, [sizes[n] for n in g.permutation(len(sizes))])
    n = _axis(g, x)
    return tf.reshape(x, [*sizes[:n], -1, *[1] * int(g.integers(2)), *sizes[n + 1 :]])


def _expand(g, x, pool):
    if g.random() < 0.5:
        return tf.expand_dims(x, int(g.integers(-x.shape.rank - 1, x.shape.rank + 1)))
    ones = [n for n, size in enumerate(x.shape) if size == 1]
    return tf.squeeze(x, ones[:1] if ones else None)


def _repeat(g, x, pool):
    axis = _axis(g, x)
    ops = [
        lambda: tf.repeat(x, 2, axis=axis),
        lambda: tf.tile(x, [2 if n == axis else 1 for n in range(x.shape.rank)]),
        lambda: tf.broadcast_to(x, tf.concat([[2], tf.shape(x)], 0)),
        lambda: tf.pad(x, [[int(n == axis), 0] for n in range(x.shape.rank)]),
    ]
    return ops[g.integers(len(ops))]()


def _join(g, x, pool):
    y = pool[g.integers(len(pool))]
    if g.random() < 0.5:
        return tf.concat([x, y], _axis(g, x))
    return tf.stack([x, y], _axis(g, x))


def _part(g, x, pool):
    axis = _axis(g, x)
    before = [slice(None)] * axis
    ops = [
        lambda: x[(*before, slice(1, None))],
        lambda: x[(*before, slice(None, TWO))],
        lambda: x[(*before, slice(ONE, None))],
        lambda: x[(*before, ONE)],
        lambda: tf.gather(x, ORDER, axis=axis),
        lambda: x[(*before, slice(None, None, -1))],
        lambda: x[(*before, 0)],
        lambda: x[..., tf.newaxis, :],
        lambda: x[(*before, slice(0, tf.shape(x)[axis]))],
        lambda: tf.split(x, 2, axis)[1],
        lambda: tf.unstack(x, axis=axis)[-1],
        lambda: tf.slice(x, [0] * x.shape.rank, tf.shape(x)),
        lambda: tf.gather(x, [1, 0], axis=axis),
        lambda: tf.gather(x, tf.range(tf.shape(x)[axis]), axis=axis),
    ]
    return ops[g.integers(len(ops))]()


def _lookup(g, x, pool):
    """Numbers that depend on the data."""
    y = pool[g.integers(len(pool))]
    finite = tf.where(tf.math.is_finite(y), y, 0.0)
    number = tf.cast(tf.clip_by_value(tf.abs(finite), 0.0, 1.0), tf.int32)
    ops = [
        lambda: tf.gather(tf.constant([[1.0, 2.0], [3.0, 4.0]]), number),
        lambda: tf.gather(x, number, axis=_axis(g, x)),
        lambda: tf.gather(x, number, batch_dims=1, axis=1),
        lambda: tf.gather_nd(x, number[..., None]),
        lambda: tf.gather_nd(x, number[..., None], batch_dims=1),
    ]
    return ops[g.integers(len(ops))]()


def _product(g, x, pool):
    y = pool[g.integers(len(pool))]
    size = x.shape[-1] or 2
    weights = tf.reshape(tf.range(size * 2.0), [size, 2]) / 10.0
    ops = [
        lambda: tf.tensordot(x, weights, 1),
        lambda: tf.matmul(x, y, transpose_b=bool(g.integers(2))),
        lambda: tf.matmul(x, y, transpose_a=bool(g.integers(2))),
        lambda: tf.matmul(weights, x, transpose_a=True),
        lambda: tf.einsum(str(g.choice(EQUATIONS)), x, y),
        lambda: tf.einsum("...f,fg->...g", x, weights),
    ]
    if x.shape.rank == 3:  # TensorFlow ends the process otherwise.
        ops += [
            lambda: tf.nn.conv1d(x, tf.ones([2, size, 2]), 1, "SAME"),
            lambda: tf.nn.avg_pool1d(x, 2, 1, "SAME"),
            lambda: tf.nn.max_pool1d(x, 2, 1, "SAME"),
        ]
    return ops[g.integers(len(ops))]()


EQUATIONS = ["abc,abc->ab", "abc,abd->acd", "abc,adc->abd", "abc,cba->b", "ab,ac->abc"]
EQUATIONS += ["abc,abc->bca", "abc,dbc->ad", "ab,ab->a", "ab,cb->ca", "ab,ba->a"]


def _control(g, x, pool):
    y = pool[g.integers(len(pool))]

    def time_steps():
        outputs = tf.TensorArray(tf.float32, tf.shape(x)[0])
        steps = tf.TensorArray(tf.float32, tf.shape(x)[0]).unstack(x)

        def body(n, state, outputs):
            state = tf.tanh(state + steps.read(n))
            return n + 1, state, outputs.write(n, state)

        state = tf.zeros_like(x[0])
        loop = (tf.constant(0), state, outputs)
        *_, outputs = tf.while_loop(lambda n, *_: n < tf.shape(x)[0], body, loop)
        result = outputs.stack()
        result.set_shape(x.shape)
        return result

    ops = [
        lambda: tf.cond(tf.shape(x)[0] > 3, lambda: x, lambda: 2.0 * x),
        lambda: tf.cond(tf.shape(x)[0] > 3, lambda: x, lambda: y),
        lambda: tf.cond(tf.reduce_max(x) > 0.0, lambda: x, lambda: -x),
        lambda: tf.while_loop(lambda n, z: n < 2, lambda n, z: (n + 1, z + x), [0, x])[
            1
        ],
        lambda: tf.while_loop(
            lambda n, z: n < 2, lambda n, z: (n + 1, tf.roll(z, 1, 0)), [0, x]
        )[1],
        lambda: tf.while_loop(
            lambda n, a, b: n < 3, lambda n, a, b: (n + 1, b, a), [0, x, y]
        )[1],
        time_steps,
        lambda: tf.map_fn(tf.cumsum, x),
        lambda: tf.map_fn(
            lambda pair: pair[0] * tf.reduce_sum(pair[1]),
            (x, y),
            fn_output_signature=tf.float32,
        ),
        lambda: tf.vectorized_map(lambda row: row - tf.reduce_mean(row), x),
        lambda: tf.function(lambda z: z - tf.reduce_sum(z, -1, keepdims=True))(x),
        lambda: tf.scan(lambda a, b: a + b, x),
    ]
    return ops[g.integers(len(ops))]()


STEPS = [
    *(_unary, _binary, _binary, _reduce, _along, _transpose, _transpose, _reshape),
    *(_reshape, _reshape, _expand, _repeat, _join, _part, _lookup, _product, _control),
]


def random_program(seed, tries, *sources):
    """All tensors of a random program, and which tries made one."""
    pool, good = list(sources), []
    for number in tries:
        g = np.random.default_rng([seed, number])
        x = pool[max(g.integers(len(pool)), g.integers(len(pool)))]
        try:
            y = STEPS[g.integers(len(STEPS))](g, x, pool)
        except (ValueError, TypeError, IndexError, tf.errors.OpError):
            continue  # Shapes that do not fit.
        if (
            y.shape.rank
            and y.shape.rank < 6
            and (y.shape.num_elements() or 0) < MOST_ENTRIES
        ):
            pool.append(y)
            good.append(number)
        if len(pool) == OPS_PER_PROGRAM + len(sources):
            break
    return pool, good


def check_program(seed, batch, time, is_dynamic):
    shape = [None, None, 2] if is_dynamic else [batch, time, 2]
    specs = [tf.TensorSpec(shape), tf.TensorSpec([shape[0]])]
    g = np.random.default_rng(seed)
    data = [g.normal(size=s).astype(np.float32) for s in ([batch, time, 2], [batch])]
    _, good = random_program(seed, range(100), *map(tf.constant, data))
    traced = tf.function(lambda *x: random_program(seed, good, *x)[0], autograph=False)
    traced = traced.get_concrete_function(*specs)
    size = Size.unknown("batch") if is_dynamic else batch
    steps = Size.unknown("time") if is_dynamic else time
    x, y = traced.inputs[:2]
    sources = {
        id(x): Value(Kind.ROWS, shape=(size, steps, 2)),
        id(y): Value(Kind.ROWS, shape=(size,)),
    }
    frame = Frame(size, sources)
    values = frame.run(traced.graph.outputs)
    assert not any("could not be read" in finding.reason for finding in frame.findings)
    values = [
        None if is_guessed(tensor, frame.findings) else value
        for tensor, value in zip(traced.graph.outputs, values, strict=True)
    ]
    known = {("batch",): batch, ("time",): time}
    claims = 0
    for strange in (None, np.nan, np.inf):
        kept = g.permutation(batch) < batch // 2
        others = [g.normal(size=a.shape).astype(np.float32) for a in data]
        if strange is not None:
            others = [np.full_like(a, strange) for a in data]
        mixed = [
            np.where(kept.reshape([-1] + [1] * (a.ndim - 1)), a, b)
            for a, b in zip(data, others, strict=True)
        ]
        try:
            before, after = (traced(*map(tf.constant, d)) for d in (data, mixed))
        except tf.errors.OpError:
            return claims  # Sizes that do not fit.
        for value, a, b in zip(values, before, after, strict=True):
            claims += check_claim(value, a.numpy(), b.numpy(), kept, known)
    return claims


def is_guessed(tensor, findings):
    """Behind what is left to the probe nothing is claimed."""
    names = {op.name for op in graph_lib.ancestors([tensor])}
    return any(
        finding.path in names or any(finding.path.startswith(f"{n}/") for n in names)
        for finding in findings
    )


def check_claim(value, before, after, kept, known):
    """Whether there was something to check."""
    if value is None:
        return 0
    if value.kind is Kind.CONSTANT:
        np.testing.assert_array_equal(before, after)
        return 1
    if value.kind is not Kind.ROWS:
        return 0
    assert before.shape == after.shape
    for size, real in zip(value.shape, before.shape, strict=True):
        assert value_of_size(size, known) in (None, real)
    outer, block = (value_of_size(size, known) for size in value.layout)
    if outer is None or block is None:
        return 0
    axis = value.axis
    assert before.shape[axis] == outer * len(kept) * block
    parts = [
        np.moveaxis(
            a.reshape(*a.shape[:axis], outer, len(kept), block, *a.shape[axis + 1 :]),
            axis + 1,
            0,
        )[kept]
        for a in (before, after)
    ]
    np.testing.assert_allclose(*parts, rtol=1e-5, atol=1e-6)
    return 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("batch, time", [(4, 4), (6, 2), (2, 6)])
def test_what_is_claimed_about_random_programs_is_true(batch, time, is_dynamic):
    claims = sum(check_program(seed, batch, time, is_dynamic) for seed in range(SEEDS))
    # A test of nothing would pass, too.
    assert claims > 2 * SEEDS


SEEDS = 8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(100, 1100, 100))
def test_what_is_claimed_about_many_random_programs_is_true(first):
    for seed in range(first, first + 100):
        batch, time = ((4, 4), (6, 2), (2, 6), (4, 2))[seed % 4]
        check_program(seed, batch, time, is_dynamic=seed % 8 < 4)
