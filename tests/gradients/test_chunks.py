"""Chunks of rows: never larger than the batch, and without effect on the result."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.gradients import chunks, per_example_gradients, set_chunk_bytes
from keras_dp_ext.gradients.rules.convolution.geometry import Geometry


@pytest.fixture(autouse=True)
def default_chunk_bytes():
    yield
    set_chunk_bytes()


def small_convolution(size):
    return keras.Sequential(
        [
            keras.Input((size, size, 2)),
            keras.layers.Conv2D(48, size),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )


def of_dynamic_batch(function, size=1, model=None):
    """`function(per-example gradients)`, of a batch whose size is not known."""
    model = model or small_convolution(size)

    @tf.function(
        input_signature=[tf.TensorSpec([None, size, size, 2])], autograph=False
    )
    def run(images):
        losses = tf.reduce_sum(tf.sin(model(images)), axis=1)
        return function(per_example_gradients(losses, model.trainable_variables))

    return run


@pytest.mark.parametrize("rows", [1, 2, 5, 250])
@pytest.mark.parametrize("most", [1, 2, 3, 100, 1000])
def test_chunks_are_even_and_never_larger_than_the_batch(rows, most):
    chunk = chunks.even_chunk(rows, most)
    assert chunk <= min(rows, most)
    # Not more rounds than needed, and less than one row too many in each.
    rounds = -(-rows // chunk)
    assert rounds == -(-rows // most)
    assert rounds * chunk - rows < rounds
    assert int(chunks.even_chunk(tf.constant(rows), most)) == chunk


@pytest.mark.parametrize("rows", [1, 5, 96, 97, 250, 1001])
def test_large_batches_have_few_sizes_of_chunks(rows):
    chunk = chunks.even_chunk(rows, 96, grain=12)
    assert chunk <= min(rows, 96)
    assert chunk % 12 == 0 or chunk == rows
    rounds = -(-rows // chunk)
    assert rounds == -(-rows // 96)
    assert rounds * chunk - rows < rounds * 12
    assert int(chunks.even_chunk(tf.constant(rows), 96, grain=12)) == chunk


@pytest.mark.parametrize("rows", [1, 5, 7])
def test_a_row_map_sees_no_more_rows_than_the_batch_has(rows, rng):
    def count(gradients):
        # As many rows in a chunk, for every row.
        def rows_in_chunk(found):
            number = tf.shape(found[0])[0]
            return [tf.fill([number], tf.cast(number, tf.float32))]

        return gradients.sum_of(rows_in_chunk)

    x = rng.normal(size=(rows, 1, 1, 2)).astype(np.float32)
    assert of_dynamic_batch(count)(x)[0] == rows**2


def test_a_convolution_cuts_no_more_patches_than_the_batch_has(monkeypatch, rng):
    seen = []

    def products(self, image, gradient, made=Geometry.products_of_patches):
        tf.py_function(lambda n: seen.append(int(n)), [tf.shape(image)[0]], [])
        return made(self, image, gradient)

    monkeypatch.setattr(Geometry, "products_of_patches", products)
    # The patches of a 1 x 1 kernel are the pixels: there is nothing to cut.
    x = rng.normal(size=(250, 2, 2, 2)).astype(np.float32)
    norms = of_dynamic_batch(lambda gradients: gradients.norm_squared(), size=2)
    norms(x[:26])
    assert seen == [26]
    seen.clear()
    set_chunk_bytes(2000)
    norms = of_dynamic_batch(lambda gradients: gradients.norm_squared(), size=2)
    norms(x)
    assert sum(seen) == 250
    assert len(seen) > 1


def test_a_chunk_of_rows_is_not_cut_into_chunks_once_more():
    """Patches take more memory than what they are for: they decide on the chunk."""
    model = keras.Sequential(
        [
            keras.Input((12, 12, 2)),
            keras.layers.Conv2D(80, 4),
            keras.layers.GlobalAveragePooling2D(),
        ]
    )
    run = of_dynamic_batch(
        lambda gradients: gradients.sum_of(lambda rows: [tf.tanh(row) for row in rows]),
        12,
        model,
    )
    graph = run.get_concrete_function().graph.as_graph_def()
    loops = {
        function.signature.name: [
            node for node in function.node_def if node.op.endswith("While")
        ]
        for function in graph.library.function
    }
    assert [node for node in graph.node if node.op.endswith("While")]
    assert not any(loops.values())


def test_results_do_not_depend_on_the_size_of_a_chunk(rng):
    x = rng.normal(size=(13, 1, 1, 2)).astype(np.float32)

    def results(gradients):
        return (
            gradients.norm_squared(),
            gradients.weighted_sum(tf.range(13.0)),
            gradients.copy().sum_of(lambda rows: [tf.tanh(row) for row in rows]),
        )

    keras.utils.set_random_seed(0)
    expected = of_dynamic_batch(results)(x)
    for number in (1, 500, 3000):
        set_chunk_bytes(number)
        keras.utils.set_random_seed(0)
        tf.nest.map_structure(
            lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6),
            of_dynamic_batch(results)(x),
            expected,
        )


def test_an_empty_batch_has_no_rows():
    empty = np.zeros((0, 1, 1, 2), np.float32)
    norms, sums = of_dynamic_batch(
        lambda g: (g.norm_squared(), g.copy().sum_of(lambda rows: rows))
    )(empty)
    assert norms.shape == (0,)
    assert all(np.all(total == 0) for total in sums)


@pytest.mark.parametrize("number", [0, -1, 1.5])
def test_chunk_bytes_must_be_a_positive_number(number):
    with pytest.raises(ValueError, match="Argument `number` must be a positive"):
        set_chunk_bytes(number)
