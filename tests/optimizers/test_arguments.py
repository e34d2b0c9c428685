"""Arguments of optimizers: errors that say what to write."""

import keras
import pytest

import keras_dp_ext as dp


def test_positional_arguments_are_refused_with_the_keywords_to_use():
    with pytest.raises(
        TypeError, match=r"^DPSGD takes keyword.*learning_rate="
    ) as info:
        dp.optimizers.DPSGD(0.1, 1.0, 1.1)
    assert "locals" not in str(info.value)


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (
            {"target_epsilon": 3.0},
            r"EncodedSGD.for_budget\(epsilon=.*PrivacyAccountant",
        ),
        ({"epsilon": 3.0}, r"EncodedSGD.for_budget"),
        ({"delta": 1e-5}, "`delta` to `EncodedSGD.for_budget`"),
        ({"batch_size": 32}, "poisson_batches"),
        ({"max_grad_norm": 1.0}, "l2_norm_clip"),
    ],
)
def test_arguments_that_belong_elsewhere(arguments, advice):
    with pytest.raises(TypeError, match=advice):
        dp.optimizers.EncodedSGD(**arguments)


def test_adams_own_epsilon_is_still_its_own():
    assert dp.optimizers.DPAdam(epsilon=1e-4).epsilon == 1e-4


@pytest.mark.parametrize(
    "cls", [dp.optimizers.DPSGD, dp.optimizers.TanhAdam, dp.optimizers.DPAdamW]
)
def test_the_name_is_that_of_the_class(cls):
    optimizer = cls()
    assert optimizer.name == cls.__name__
    restored = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert restored.name == cls.__name__
    assert cls(name="mine").name == "mine"
