"""Tests read_rows_only: equal to plain Keras 3 bit for bit, without reading whole tables."""

import copy

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.compat import read_rows_only, to_keras
from tests.support.keras.keras_apis import KERAS_3 as api

pytestmark = pytest.mark.keras3

keras = api.keras
ROWS, COLUMNS = 50, 3
IDS = np.array([[3, 3, 0], [49, -1, 3], [7, 8, -50], [0, 0, 12]])
TARGETS = np.linspace(-1, 1, 4, dtype=np.float32)


def sequential(**options):
    return [keras.layers.Embedding(ROWS, COLUMNS, **options)]


def functional(**options):
    table = keras.layers.Embedding(ROWS, COLUMNS, **options)
    first, second = keras.Input([3], dtype="int64"), keras.Input([3], dtype="int64")
    both = keras.layers.Add()([table(first), table(second)])  # a shared layer
    inner = keras.Model([first, second], both)
    outer = keras.Input([3], dtype="int64")
    return keras.Model(outer, inner([outer, outer[:, ::-1]]))


class Subclassed(keras.Model):
    def __init__(self, **options):
        super().__init__()
        self.tables = [keras.layers.Embedding(ROWS, COLUMNS, **options) for _ in range(2)]
        self.head = keras.layers.Dense(1)

    def call(self, ids):
        summed = self.tables[0](ids) + self.tables[1](ids // 2)
        return self.head(keras.ops.sum(summed, axis=1))


def with_head(layers):
    return keras.Sequential([*layers, keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])


MODELS = {
    "sequential": lambda: with_head(sequential()),
    "masked": lambda: with_head(sequential(mask_zero=True)),
    "regularized": lambda: with_head(sequential(embeddings_regularizer="l2")),
    "constrained": lambda: with_head(sequential(embeddings_constraint="unit_norm")),
    "float64": lambda: with_head(sequential(dtype="float64")),
    "mixed bfloat16": lambda: with_head(sequential(dtype="mixed_bfloat16")),
    "mixed precision": lambda: with_head(sequential(dtype="mixed_float16")),
    "shared and nested": lambda: with_head([functional()]),
    "subclassed": Subclassed,
}
OPTIMIZERS = {
    "LazyAdam": lambda: to_keras(legacy_opt.LazyAdamOptimizer(0.1), api="keras3"),
    "AdagradDecay": lambda: to_keras(legacy_opt.AdagradDecayOptimizer(0.1, None), api="keras3"),
    "clipped": lambda: to_keras(tf.compat.v1.train.AdamOptimizer(0.1), api="keras3", clipnorm=0.1),
    "Keras' Adam": lambda: keras.optimizers.Adam(0.1),
    "Keras' SGD": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
}


def built(name):
    """Returns a model of `MODELS` with the same weights in each call."""
    keras.utils.set_random_seed(7)
    model = MODELS[name]()
    model(IDS)
    return model


def trained(model, optimizer, eagerly=False, ids=IDS):
    """Compiles and trains a model; returns the losses and all weights."""
    model.compile(
        OPTIMIZERS[optimizer](),
        "mse",
        run_eagerly=eagerly,
        **({} if eagerly else {"jit_compile": False}),
    )
    history = model.fit(ids, TARGETS, batch_size=2, epochs=3, shuffle=False, verbose=0)
    return [history.history["loss"], model.predict(ids, verbose=0), *model.get_weights()]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        np.testing.assert_array_equal(one, other)


@pytest.mark.in_turn(
    name=MODELS, optimizer=OPTIMIZERS, eagerly=[False, True], dtype=["int32", "int64", "float32"]
)
def test_equals_plain_keras(name, optimizer, eagerly, dtype):
    plain, changed = built(name), built(name)
    assert len(read_rows_only(changed)) == (2 if name == "subclassed" else 1)
    ids = IDS.astype(dtype)
    before = plain.get_weights()
    expected = trained(plain, optimizer, eagerly, ids)
    assert not np.array_equal(expected[2], before[0])
    assert_same(trained(changed, optimizer, eagerly, ids), expected)


def operations_on(table, function, ids):
    """Returns the types of operations that use a table in the traced gradients of a model."""

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(function(ids))
        return tape.gradient(loss, table)

    graph = gradients.get_concrete_function().graph
    (handle,) = [inner for outer, inner in graph.captures if outer is table.handle]
    return {operation.type for operation in handle.consumers()}


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"regularized"}))
def test_the_table_is_not_read(name):
    model = built(name)
    tables = [each for each in model.variables if "embeddings" in each.path]
    tables = [each.value for each in tables]
    assert all("ReadVariableOp" in operations_on(each, model, IDS) for each in tables)
    read_rows_only(model)
    assert all(operations_on(each, model, IDS) == {"ResourceGather"} for each in tables)


def test_a_model_that_was_trained_before_is_traced_again():
    plain, changed = built("sequential"), built("sequential")
    for model in (plain, changed):
        trained(model, "LazyAdam")
        model.evaluate(IDS, TARGETS, verbose=0)
    read_rows_only(changed)
    assert changed.train_function is changed.test_function is changed.predict_function is None
    plain.train_function = None  # what was traced for several sizes of a batch rounds differently
    for model in (plain, changed):
        model.fit(IDS, TARGETS, verbose=0)
    assert_same(changed.get_weights(), plain.get_weights())


def test_ids_out_of_range_raise_the_same_error():
    model = built("sequential")
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"50 is not in \[0, 50\)"):
            model.layers[0](np.array([[50]]))
        read_rows_only(model)


@pytest.mark.parametrize("kind", ["ragged", "nested ragged", "sparse"])
def test_other_kinds_of_ids(kind):
    ids = {
        "ragged": tf.ragged.constant([[3, -1], [], [4, 4, 0]]),
        "nested ragged": tf.ragged.constant([[[3, 2], []], [[-2]]]),
        "sparse": tf.sparse.from_dense([[3, 0], [4, 1]]),
    }[kind]
    layer = keras.layers.Embedding(ROWS, COLUMNS)
    layer.build()

    def gradient():
        with tf.GradientTape() as tape:
            result = layer(ids)
            flat = result.flat_values if isinstance(result, tf.RaggedTensor) else result
            loss = tf.reduce_sum(flat * flat)
        dense = tf.convert_to_tensor(tape.gradient(loss, layer.embeddings.value))
        return [flat.numpy(), dense.numpy()]

    expected = gradient()
    read_rows_only(layer)
    assert_same(gradient(), expected)


class Doubled(keras.layers.Embedding):
    def call(self, inputs):
        return 2 * super().call(inputs)


class Tied(keras.layers.Embedding):
    @property
    def embeddings(self):
        return 2 * super().embeddings


def quantized():
    layer = keras.layers.Embedding(ROWS, COLUMNS)
    layer.build()
    layer.quantize("int8")
    return layer


@pytest.mark.parametrize(
    "make, reason",
    [
        (lambda: Doubled(ROWS, COLUMNS), "its class Doubled overrides call"),
        (lambda: Tied(ROWS, COLUMNS), "its class Tied overrides embeddings"),
        (quantized, r"it is quantized \(int8\)"),
        (lambda: keras.layers.Embedding(ROWS, COLUMNS, lora_rank=2), "it uses LoRA"),
    ],
)
def test_what_is_left_alone_is_named(make, reason):
    model = keras.Sequential([make(), keras.layers.Embedding(3, 2)])
    with pytest.warns(UserWarning, match=f"leaves '{model.layers[0].name}' alone: {reason}"):
        assert read_rows_only(model) == [model.layers[1]]


def test_a_model_that_is_compiled_with_xla_is_left_alone():
    model = built("sequential")
    model.compile("sgd", "mse", jit_compile=True)
    with pytest.warns(UserWarning, match="jit_compile=True"):
        assert read_rows_only(model) == []


@pytest.mark.parametrize("change", ["quantize", "enable_lora"])
def test_a_layer_that_changes_later_computes_what_keras_computes(change):
    plain, changed = (built("sequential").layers[0] for _ in range(2))
    read_rows_only(changed)
    for layer in (plain, changed):
        getattr(layer, change)("int8" if change == "quantize" else 2)
    if change == "enable_lora":
        for layer in (plain, changed):
            layer.lora_embeddings_b.assign(np.ones([2, COLUMNS]))
        changed.lora_embeddings_a.assign(plain.lora_embeddings_a)
    assert_same([changed(IDS)], [plain(IDS)])


def test_a_step_that_is_compiled_with_xla_later():
    plain, changed = built("sequential"), built("sequential")
    read_rows_only(changed)
    results = []
    for model in (plain, changed):
        model.compile("sgd", "mse", jit_compile=True)
        model.fit(IDS, TARGETS, verbose=0)
        results.append(model.get_weights())
    assert_same(*results)


def test_configurations_files_and_clones_are_plain_keras(tmp_path):
    plain, changed = built("shared and nested"), built("shared and nested")
    before = changed.to_json()
    (layer,) = read_rows_only(changed)
    assert changed.to_json() == before
    assert read_rows_only(changed) == []  # it is changed already
    changed.save(tmp_path / "model.keras")
    changed.save_weights(tmp_path / "model.weights.h5")
    plain.load_weights(tmp_path / "model.weights.h5")
    for other in (
        keras.models.load_model(tmp_path / "model.keras"),
        keras.models.clone_model(changed),
    ):
        assert len(read_rows_only(other)) == 1
    copied = copy.deepcopy(layer)
    copied.embeddings.assign(np.zeros([ROWS, COLUMNS]))
    assert not np.any(copied(IDS)) and np.any(layer(IDS))


def test_an_exported_model(tmp_path):
    model = built("sequential")
    read_rows_only(model)
    model.export(str(tmp_path / "served"), verbose=False)
    served = tf.saved_model.load(str(tmp_path / "served"))
    assert_same([served.serve(IDS.astype(np.float32))], [model(IDS.astype(np.float32))])


def test_another_argument_is_refused():
    with pytest.raises(TypeError, match="model must be a model or layer of Keras 3, got 'adam'"):
        read_rows_only("adam")
