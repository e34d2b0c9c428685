"""What a training step would do on a GPU, read off the kernel registry."""

import pytest
import tensorflow as tf

from benchmarks import gpu_audit
from keras_dp_ext.gradients.rules import device

pytestmark = pytest.mark.skipif(
    not tf.sysconfig.get_build_info()["is_cuda_build"],
    reason="This TensorFlow was built without CUDA: its registry has no GPU kernels.",
)


@pytest.mark.parametrize(
    "workload, setting",
    [
        ("W1", "dpsgd"),
        ("W2", "dpsgd, secure noise"),
        ("W2", "dpsgd, accumulation"),
        ("W2", "tanh"),
        ("W2", "directional, pruning"),
        ("W2", "encoding, KS denoising"),
    ],
)
def test_nothing_but_scalars_crosses_to_the_host(workload, setting):
    assert gpu_audit.audit(workload, setting) == []


@pytest.mark.slow
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("setting", gpu_audit.SETTINGS)
@pytest.mark.parametrize("workload", gpu_audit.AUDITED)
def test_every_workload(workload, setting, static):
    if not static and setting in gpu_audit.NEEDS_STATIC_BATCH:
        pytest.skip("The size of a microbatch must be known beforehand.")
    assert gpu_audit.audit(workload, setting, static) == []


def found(function, *shapes_and_types):
    signature = [tf.TensorSpec(*pair) for pair in shapes_and_types]
    traced = tf.function(function, signature, autograph=False).get_concrete_function()
    return {(f.op, f.why) for f in gpu_audit.audit_graph(traced.graph)}


def test_the_audit_finds_ops_without_a_kernel_and_data_on_the_host():
    words = ([3, 500], tf.uint32)
    assert ("Unpack", "no kernel") in found(lambda x: tf.unstack(x), words)
    numbers = ([500], tf.int32)
    assert ("AddV2", "crosses") in found(lambda x: x + x, numbers)
    assert found(lambda x: x + x, ([], tf.int32)) == set()
    assert found(lambda x: x + x, ([500], tf.float32)) == set()


def test_the_audit_looks_into_loops():
    def loop(x):
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + x), (0, x))

    assert ("AddV2", "crosses") in found(loop, ([500], tf.int32))


def test_what_xla_compiles_stays_on_the_device():
    def double(x):
        return tf.cast(x + x, tf.float32)

    doubled = tf.function(double, jit_compile=True)
    assert found(lambda x: doubled(x), ([500], tf.int32)) == set()


def test_a_step_for_a_gpu_has_no_loops_over_small_kernels():
    assert device.runs_on_cpu() == (not tf.config.list_physical_devices("GPU"))
    with device.as_on_a_gpu():
        assert not device.runs_on_cpu()
        assert device.integer_dtype() == tf.int64
