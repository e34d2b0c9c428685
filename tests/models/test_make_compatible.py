"""Models with BatchNormalization, made fit for private training."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp

layers = keras.layers


@pytest.fixture
def images(rng):
    x = rng.standard_normal([24, 8, 8, 3]).astype("float32")
    return x, np.arange(24) % 2


def sequential():
    return keras.Sequential(
        [
            keras.Input([8, 8, 3]),
            layers.Conv2D(16, 3, name="conv"),
            layers.BatchNormalization(name="bn"),
            layers.Activation("relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2, name="head"),
        ]
    )


def functional():
    inputs = keras.Input([8, 8, 3])
    x = layers.Conv2D(16, 3, padding="same", name="conv")(inputs)
    y = layers.BatchNormalization(scale=False, name="bn")(x)
    x = layers.Add()([x, keras.ops.relu(y)])
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(2, name="head")(x))


def nested():
    base = functional()
    inputs = keras.Input([8, 8, 3])
    shared = layers.BatchNormalization(name="shared")
    x = shared(inputs) + shared(2.0 * inputs)
    x = layers.Dense(16)(base(x))
    return keras.Model(inputs, layers.Dense(2, name="top")(x))


def train(model, data):
    model.compile(
        dp.optimizers.DPSGD(learning_rate=0.1, noise_multiplier=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(dp.data.poisson_batches(*data, batch_size=8), verbose=0)
    return int(model.optimizer.releases)


def kinds(model):
    return {type(layer).__name__ for layer in model._flatten_layers()}


@pytest.mark.parametrize("make", [sequential, functional, nested])
def test_the_model_trains_privately_and_survives_a_round_trip(make, images, tmp_path):
    model = make()
    with pytest.raises(ValueError, match="make_compatible"):
        train(model, images)
    private = dp.models.make_compatible(make(), verbose=False)
    assert "BatchNormalization" not in kinds(private)
    assert not dp.models.find_incompatible(private)
    assert train(private, images) == 3
    private.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(images[0]), private(images[0]), atol=1e-6)


@pytest.mark.parametrize("make", [sequential, functional, nested])
def test_all_other_weights_are_kept(make):
    model = make()
    for variable in model.weights:
        variable.assign(np.random.default_rng(1).uniform(0.5, 1.5, variable.shape))
    before = {v.path.split("/", 1)[-1]: v.numpy() for v in model.weights}
    private = dp.models.make_compatible(model, verbose=False)
    after = {v.path.split("/", 1)[-1]: v.numpy() for v in private.weights}
    assert {name for name in before if "moving" not in name} == set(after)
    for name, value in after.items():
        np.testing.assert_array_equal(value, before[name])
    # The original is another model.
    private.weights[0].assign(np.zeros(private.weights[0].shape))
    assert np.all(model.weights[0].numpy() != 0)


def test_a_shared_layer_stays_shared():
    private = dp.models.make_compatible(nested(), verbose=False)
    assert len([v for v in private.weights if "shared/gamma" in v.path]) == 1


def test_it_says_what_it_changed(capsys):
    dp.models.make_compatible(sequential())
    shown = capsys.readouterr().out
    assert "1 BatchNormalization replaced by GroupNormalization: bn (4 groups)" in shown


@pytest.mark.parametrize("make", [sequential, nested])
def test_frozen_statistics_give_the_same_outputs(make, images, capsys):
    model = make()
    for variable in model.non_trainable_weights:
        variable.assign(np.random.default_rng(1).uniform(0.5, 1.5, variable.shape))
    private = dp.models.make_compatible(model, batch_normalization="freeze")
    assert "frozen" in capsys.readouterr().out
    x = images[0]
    np.testing.assert_allclose(
        private(x, training=True), model(x, training=False), rtol=1e-5, atol=1e-5
    )
    statistics = [v.numpy() for v in private.weights if "moving" in v.path]
    assert train(private, images) == 3
    for before, variable in zip(
        statistics, [v for v in private.weights if "moving" in v.path], strict=True
    ):
        np.testing.assert_array_equal(before, variable.numpy())


def test_what_is_frozen_already_stays(images):
    model = sequential()
    model.get_layer("bn").trainable = False
    assert dp.models.make_compatible(model, verbose=False) is model
    assert train(model, images) == 3


def test_a_compiled_model_does_not_bring_an_optimizer_that_knows_nothing():
    model = sequential()
    model.compile(dp.optimizers.DPSGD(), loss="mse")
    private = dp.models.make_compatible(model, verbose=False)
    assert not private.compiled and private.optimizer is None


def test_subclassed_models_are_told_what_to_write():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.norm = layers.BatchNormalization(name="norm")

        def call(self, x):
            return self.norm(x)

    with pytest.raises(ValueError, match=r"Own are called by its own code.*`norm`"):
        dp.models.make_compatible(Own())


def test_a_model_that_is_not_built_is_told_so():
    model = keras.Sequential([layers.Dense(4), layers.BatchNormalization()])
    with pytest.raises(ValueError, match="must be built"):
        dp.models.make_compatible(model)


def test_normalization_inside_of_another_layer_is_named():
    inner = layers.TimeDistributed(layers.BatchNormalization(name="inner"))
    model = keras.Sequential([keras.Input([5, 4]), inner, layers.Flatten()])
    with pytest.raises(ValueError, match=r"inside of other layers.*`inner`"):
        dp.models.make_compatible(model, verbose=False)


def test_other_layers_that_mix_are_named_with_what_to_do():
    model = keras.Sequential(
        [keras.Input([5, 4], batch_size=2), layers.LSTM(3, stateful=True, name="rnn")]
    )
    with pytest.warns(UserWarning, match=r"rnn \(LSTM\) carries its.*stateful=False"):
        assert dp.models.make_compatible(model, verbose=False) is model


@pytest.mark.parametrize(
    ("channels", "most", "groups"),
    [(16, 32, 4), (24, 32, 6), (320, 32, 32), (3, 32, 1), (7, 32, 1), (64, 8, 8)],
)
def test_groups_divide_the_channels_and_are_not_too_small(channels, most, groups):
    inputs = keras.Input([2, 2, channels])
    model = keras.Model(inputs, layers.BatchNormalization(name="bn")(inputs))
    private = dp.models.make_compatible(model, groups=most, verbose=False)
    assert private.get_layer("bn").groups == groups


@pytest.mark.parametrize("name", ["MobileNetV2", "ResNet50", "EfficientNetB0"])
def test_models_of_keras_applications(name):
    make = getattr(keras.applications, name)
    model = make(weights=None, input_shape=[32, 32, 3], classes=2)
    before = len(dp.models.find_incompatible(model))
    private = dp.models.make_compatible(model, verbose=False)
    assert before > 30 and not dp.models.find_incompatible(private)
    groups = [
        layer
        for layer in private.layers
        if isinstance(layer, layers.GroupNormalization)
    ]
    assert len(groups) == before
    # No output may be constant: groups of one channel in one pixel would be zero.
    x = np.random.default_rng(0).uniform(0, 255, [2, 32, 32, 3])
    outputs = private(x).numpy()
    assert np.all(np.isfinite(outputs)) and np.any(outputs[0] != outputs[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MobileNetV2", "ResNet50", "EfficientNetB0"])
def test_models_of_keras_applications_train_privately(name, rng):
    make = getattr(keras.applications, name)
    model = dp.models.make_compatible(
        make(weights=None, input_shape=[32, 32, 3], classes=2), verbose=False
    )
    data = rng.uniform(0, 255, [16, 32, 32, 3]).astype("float32"), np.arange(16) % 2
    model.compile(dp.optimizers.DPSGD(), "sparse_categorical_crossentropy")
    model.fit(
        dp.data.shuffled_batches(*data, batch_size=8), steps_per_epoch=1, verbose=0
    )
    assert int(model.optimizer.releases) == 1


def test_resnet_of_keras_hub(tmp_path):
    keras_hub = pytest.importorskip("keras_hub")
    backbone = keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64],
        stackwise_num_blocks=[1],
        stackwise_num_strides=[1],
        block_type="basic_block",
        image_shape=(12, 12, 3),
    )
    model = keras_hub.models.ResNetImageClassifier(backbone=backbone, num_classes=2)
    private = dp.models.make_compatible(model, verbose=False)
    assert not dp.models.find_incompatible(private)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=[16, 12, 12, 3]).astype("float32"), np.arange(16) % 2
    private.compile(
        dp.optimizers.DPSGD(learning_rate=0.1),
        keras.losses.SparseCategoricalCrossentropy(),
    )
    private.fit(x, y, batch_size=8, verbose=0)
    private.save(tmp_path / "resnet.keras")
    again = keras.models.load_model(tmp_path / "resnet.keras")
    np.testing.assert_allclose(again(x), private(x), atol=1e-6)
    # It is an ordinary model, so that KerasHub does not give it a plain optimizer.
    assert isinstance(again.optimizer, dp.optimizers.DPSGD)
    assert int(again.optimizer.releases) == 2
