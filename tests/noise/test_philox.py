"""The words are Philox's, as its authors and TensorFlow compute them, and never repeat."""

import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.noise import philox


def words(numbers):
    return [tf.constant(number, tf.uint32) for number in numbers]


# Random123, tests/kat_vectors: counter, key, result.
KNOWN = [
    ("00000000 " * 4, "00000000 " * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_the_known_answers_of_its_authors(counter, key, expected):
    counter, key = (
        words(int(word, 16) for word in value.split()) for value in (counter, key)
    )
    result = philox.encrypt(counter, key)
    assert " ".join(f"{int(word):08x}" for word in result) == expected


@pytest.mark.parametrize("seed", [(0, 0), (7, 11), (-1, 2**31 - 1), (-(2**31), 5)])
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_they_are_the_words_of_tensorflow(seed, jit_compile):
    @tf.function(jit_compile=jit_compile, autograph=False)
    def draw(seed):
        return tf.stack(philox.blocks([30, 33], seed), axis=-1)

    unsigned = np.array(seed, np.int32).astype(np.uint32).astype(np.int64)
    expected = tf.random.stateless_uniform(
        [30, 33, 4], unsigned, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
    )
    np.testing.assert_array_equal(draw(tf.constant(seed)), expected)
    by_kernel = tf.stack(philox.blocks_by_kernel(990, tf.constant(seed)), axis=-1)
    np.testing.assert_array_equal(tf.reshape(by_kernel, [30, 33, 4]), expected)


@pytest.mark.parametrize("first", [0, 1, 600, 2**31 - 1])
def test_blocks_from_a_later_number_on_are_those_of_the_counter(first):
    """The bijection of the counter itself: key and upper half are those of the seed."""
    seed = tf.constant([7, -11])
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=philox.unsigned(seed))
    upper, key = philox._halves(counter[1]), philox._halves(key[0])
    drawn = philox.blocks([2, 3], seed, tf.constant(first, tf.uint32))
    for place in range(6):
        number = tf.constant(first + place, tf.uint32)
        expected = philox.encrypt([number, tf.constant(0, tf.uint32), *upper], key)
        found = [np.ravel(words)[place] for words in drawn]
        assert found == [int(word) for word in expected]


def test_no_block_comes_twice_for_the_numbers_of_many_steps():
    """Seeds as `NoiseSource` makes them: one key, ascending numbers."""
    drawn = tf.function(philox.blocks, jit_compile=True, autograph=False)
    blocks = np.concatenate(
        [
            np.stack(drawn([4096], tf.constant([123, number])), axis=-1)
            for number in range(-50, 50)
        ]
    )
    assert len(np.unique(blocks, axis=0)) == len(blocks)


def test_a_counter_that_would_start_again_is_refused():
    with pytest.raises(ValueError, match="must have fewer than"):
        philox.blocks([2**16, 2**15], tf.constant([1, 2]))
