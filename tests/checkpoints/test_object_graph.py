"""Tests that the parsed object graph of a checkpoint has the saved objects' variables and slots.

A bridged optimizer is a Keras optimizer that `to_keras` returns. A numbered optimizer saves its
variables as a list.
"""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, compat, versions
from legacy_opt.compat.state.checkpoint_files.errors import CheckpointError
from legacy_opt.compat.state.checkpoint_files.object_graph import (
    NAMED_BY_NUMBER,
    NUMBERED,
    OBJECT_GRAPH,
    SLOT_VARIABLES,
    parse_object_graph,
)
from legacy_opt.compat.state.checkpoint_files.reader import open_checkpoint
from tests.support.keras import keras_apis

v1 = tf.compat.v1

keras_2 = keras_apis.keras_2()
optimizers_2 = getattr(keras_2.optimizers, "legacy", keras_2.optimizers)
HAS_KERAS_3 = versions.keras_facts()["generation"] == 3
KERASES = [keras_2] + ([versions.keras_3()] if HAS_KERAS_3 else [])
HAS_NUMBERED_KERAS_2 = optimizers_2 is not keras_2.optimizers and hasattr(
    keras_2.optimizers.Adam, "build"
)

KERAS_2 = {
    "adam": lambda: optimizers_2.Adam(0.01),
    "momentum": lambda: optimizers_2.SGD(0.01, momentum=0.9),
    "sgd": lambda: optimizers_2.SGD(0.01),
    "adagrad": lambda: optimizers_2.Adagrad(0.01),
    "ftrl": lambda: optimizers_2.Ftrl(0.01),
}
V1 = {
    "adam": lambda: v1.train.AdamOptimizer(0.01),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.01),
    "gradient descent": lambda: v1.train.GradientDescentOptimizer(0.01),
    "adagrad decay": lambda: AdagradDecayOptimizer(0.01, None),
}
# {Keras optimizer: {attribute that is a list of slots: the name of these slots}}
LISTS_OF_KERAS_3 = {
    "Adam": {"_momentums": "momentum", "_velocities": "velocity"},
    "Adagrad": {"_accumulators": "accumulator"},
    "Ftrl": {"_accumulators": "accumulator", "_linears": "linear"},
}
LISTS_OF_KERAS_2 = {
    "Adam": {"_momentums": "m", "_velocities": "v"},
    "Adagrad": {"_accumulators": "accumulator"},
    "Ftrl": {"_accumulators": "accumulator", "_linears": "linear"},
}


def bridged(name, api):
    return compat.to_keras(V1[name](), api=api)


def trained(keras, optimizer):
    """Returns a model that `optimizer` has trained with different gradients for each variable."""
    model = keras.Sequential([keras.layers.Dense(3, name="one"), keras.layers.Dense(1, name="two")])
    model.build((None, 2))
    for step in range(3):
        random = np.random.RandomState(step)
        gradients = [
            tf.constant(random.uniform(-1, 1, size=variable.shape), tf.float32)
            for variable in model.trainable_variables
        ]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return model


def name_of(variable):
    return getattr(variable, "path", None) or variable.name.split(":")[0]


def saved(tmp_path, **objects):
    return open_checkpoint(tf.train.Checkpoint(**objects).save(str(tmp_path / "checkpoint")))


def assert_accounts_for_everything(checkpoint):
    """Asserts that the object graph lists each tensor exactly once."""
    graph = checkpoint.object_graph
    keys = list(graph.variables.values()) + list(graph.python_states.values())
    keys += [graph.save_counter] if graph.save_counter else []
    for optimizer in graph.optimizers:
        for part in (optimizer.slots, optimizer.variables, optimizer.unassigned):
            keys += list(part.values())
    assert sorted(keys) == sorted(checkpoint.tensors)
    assert OBJECT_GRAPH not in checkpoint.tensors


def assert_holds(checkpoint, keys, expected):
    assert set(keys) == set(expected)
    for key, variable in expected.items():
        assert np.array_equal(checkpoint.read(keys[key]), variable.numpy()), key


def assert_different(slots):
    """Asserts that no two slots have equal values, so that swapped slots are detected."""
    values = [slot.numpy().tolist() for slot in slots.values()]
    assert all(values.count(value) == 1 for value in values)


def slots_of(optimizer, model):
    return {
        (name_of(variable), slot_name): optimizer.get_slot(variable, slot_name)
        for variable in model.trainable_variables
        for slot_name in optimizer.get_slot_names()
    }


@pytest.mark.parametrize("way", ["checkpoint", "save_weights"])
@pytest.mark.parametrize(
    "kind, name",
    [("own", name) for name in sorted(KERAS_2)] + [("bridged", name) for name in sorted(V1)],
)
def test_optimizer_v2(tmp_path, kind, name, way):
    optimizer = KERAS_2[name]() if kind == "own" else bridged(name, "optimizer_v2")
    model = trained(keras_2, optimizer)
    if way == "checkpoint":
        checkpoint = saved(tmp_path, model=model, optimizer=optimizer)
    else:
        model.compile(optimizer, "mse")
        model.save_weights(str(tmp_path / "weights"), save_format="tf")
        checkpoint = open_checkpoint(tmp_path / "weights")
    graph = checkpoint.object_graph
    assert_accounts_for_everything(checkpoint)
    assert_holds(checkpoint, graph.variables, {name_of(each): each for each in model.weights})
    slots = slots_of(optimizer, model)
    assert_holds(checkpoint, graph.optimizer.slots, slots)
    assert checkpoint.read(graph.optimizer.variables["iter"]) == 3
    assert checkpoint.read(graph.optimizer.variables["learning_rate"]) == np.float32(0.01)
    assert graph.optimizer.kind == SLOT_VARIABLES and graph.optimizer.path == "optimizer"
    assert not graph.optimizer.unassigned
    if (kind, name) == ("bridged", "adam"):
        power = checkpoint.read(graph.optimizer.variables["beta1_power"])
        assert np.array_equal(power, optimizer.non_slots["beta1_power"].numpy())
        assert_different(slots)
    if way == "checkpoint":
        assert checkpoint.read(graph.save_counter) == 1


def test_a_v1_optimizer(tmp_path):
    optimizer, x = v1.train.AdamOptimizer(0.01), tf.Variable([1.0, 2.0], name="x")
    optimizer.apply_gradients([(tf.constant([0.5, -0.5]), x)])
    checkpoint = saved(tmp_path, x=x, optimizer=optimizer)
    graph = checkpoint.object_graph
    assert_accounts_for_everything(checkpoint)
    slots = {("x", slot): optimizer.get_slot(x, slot) for slot in ("m", "v")}
    assert_holds(checkpoint, graph.optimizer.slots, slots)
    assert set(graph.optimizer.variables) == {"beta1_power", "beta2_power"}


def numbered_cases():
    cases = []
    if HAS_NUMBERED_KERAS_2:
        cases += [(keras_2, name) for name in sorted(LISTS_OF_KERAS_2)]
    if HAS_KERAS_3:
        cases += [(versions.keras_3(), name) for name in sorted(LISTS_OF_KERAS_3)]
    return cases


def test_every_keras_with_numbered_variables_is_tested():
    """A Keras package is in `numbered_cases` if and only if its Adam has the method `build`."""
    numbering = {keras for keras, _ in numbered_cases()}
    for keras in KERASES:
        assert hasattr(keras.optimizers.Adam, "build") == (keras in numbering)


def test_numbered(tmp_path):
    for keras, name in numbered_cases():
        lists = LISTS_OF_KERAS_2 if keras is keras_2 else LISTS_OF_KERAS_3
        optimizer = getattr(keras.optimizers, name)(0.01)
        model = trained(keras, optimizer)
        folder = tmp_path / keras.__name__ / name
        checkpoint = saved(folder, model=model, optimizer=optimizer)
        graph = checkpoint.object_graph
        assert_accounts_for_everything(checkpoint)
        names = {name_of(each): each for each in model.weights}
        assert_holds(checkpoint, graph.variables, names)
        slots = {
            (name_of(variable), slot_name): slot
            for attribute, slot_name in lists[name].items()
            for variable, slot in zip(model.trainable_variables, getattr(optimizer, attribute))
        }
        assert_holds(checkpoint, graph.optimizer.slots, slots)
        assert_different(slots)
        assert checkpoint.read(graph.optimizer.variables["_iterations"]) == 3
        assert graph.optimizer.kind == NUMBERED and not graph.optimizer.unassigned


def test_bridged_keras_3(tmp_path):
    for name in V1 if HAS_KERAS_3 else ():
        optimizer = bridged(name, "keras3")
        model = trained(versions.keras_3(), optimizer)
        checkpoint = saved(tmp_path / name, model=model, optimizer=optimizer)
        graph = checkpoint.object_graph
        assert_accounts_for_everything(checkpoint)
        names = {name_of(each): each for each in model.weights}
        assert_holds(checkpoint, graph.variables, names)
        slots = slots_of(optimizer, model)
        assert_holds(checkpoint, graph.optimizer.slots, slots)
        assert checkpoint.read(graph.optimizer.variables["iteration"]) == 3
        assert graph.optimizer.kind == NAMED_BY_NUMBER and not graph.optimizer.unassigned
        assert list(graph.python_states) == ["optimizer/layout"]
        if name == "adam":
            power = checkpoint.read(graph.optimizer.variables["shared_beta1_power"])
            assert np.array_equal(power, optimizer.non_slots["beta1_power"].numpy())
            assert_different(slots)


def test_slots_of_variables_that_have_the_same_name(tmp_path):
    """The object graph distinguishes the variables by their paths.

    However, the newer optimizers of Keras 2 (from Keras 2.11) save the names of variables, not
    their paths. Therefore the slots of these optimizers stay unassigned.
    """
    for keras in KERASES:
        optimizers = [keras.optimizers.Adam(0.01)]
        optimizers += [optimizers_2.Adam(0.01)] if keras is keras_2 else []
        for number, optimizer in enumerate(optimizers):
            a, b = (tf.Variable([value, 2.0], name="same") for value in (1.0, 3.0))
            gradients = [tf.constant([0.5, 0.1]), tf.constant([0.2, 0.3])]
            optimizer.apply_gradients(zip(gradients, [a, b]))
            folder = tmp_path / (f"{keras.__name__}-{number}")
            checkpoint = saved(folder, a=a, b=b, optimizer=optimizer)
            graph = checkpoint.object_graph
            assert_accounts_for_everything(checkpoint)
            assert sorted(checkpoint.read(key)[0] for key in graph.variables.values()) == sorted(
                [a.numpy()[0], b.numpy()[0]]
            )
            if graph.optimizer.kind == SLOT_VARIABLES:
                assert_holds(checkpoint, graph.variables, {"a": a, "b": b})
                slots = slots_of_keras_2_variables([("a", a), ("b", b)], optimizer)
                assert_holds(checkpoint, graph.optimizer.slots, slots)
            elif keras is keras_2:
                assert not graph.optimizer.slots and len(graph.optimizer.unassigned) == 4
            else:
                momentums = {
                    checkpoint.read(key)[0]
                    for (_, slot), key in graph.optimizer.slots.items()
                    if "momentum" in slot
                }
                assert momentums == {each.numpy()[0] for each in optimizer._momentums}
                assert not graph.optimizer.unassigned


def slots_of_keras_2_variables(named, optimizer):
    return {
        (name, slot): optimizer.get_slot(variable, slot)
        for name, variable in named
        for slot in optimizer.get_slot_names()
    }


def test_several_optimizers(tmp_path):
    x = tf.Variable([1.0, 2.0], name="x")
    first, second = optimizers_2.Adam(0.01), optimizers_2.SGD(0.01, momentum=0.9)
    for optimizer in (first, second):
        optimizer.apply_gradients([(tf.constant([0.5, -0.5]), x)])
    checkpoint = saved(tmp_path, x=x, first=first, second=second)
    graph = checkpoint.object_graph
    assert_accounts_for_everything(checkpoint)
    found = {optimizer.path: optimizer for optimizer in graph.optimizers}
    assert_holds(checkpoint, found["first"].slots, slots_of_keras_2_variables([("x", x)], first))
    assert_holds(checkpoint, found["second"].slots, slots_of_keras_2_variables([("x", x)], second))
    with pytest.raises(ValueError, match="several optimizers: first, second"):
        _ = graph.optimizer.slots


def test_no_optimizer(tmp_path):
    checkpoint = saved(tmp_path, x=tf.Variable(1.0, name="x"), iter=tf.Variable(2.0, name="y"))
    graph = checkpoint.object_graph
    assert_accounts_for_everything(checkpoint)
    assert graph.optimizer is None
    assert set(graph.variables) == {"x", "y"}


def test_an_optimizer_that_scales_its_loss(tmp_path):
    """The object graph has one optimizer for a LossScaleOptimizer and the optimizer inside it."""
    for keras in KERASES:
        scaling = getattr(keras, "mixed_precision", None)
        scaling = getattr(scaling, "LossScaleOptimizer", None)
        if scaling is None:  # Keras 2 before TensorFlow 2.4
            continue
        optimizer = scaling((optimizers_2 if keras is keras_2 else keras.optimizers).Adam(0.01))
        x = tf.Variable([1.0, 2.0], name="x")
        optimizer.apply_gradients([(tf.constant([0.5, -0.5]), x)])
        checkpoint = saved(tmp_path / keras.__name__, x=x, optimizer=optimizer)
        assert_accounts_for_everything(checkpoint)
        slots = checkpoint.object_graph.optimizer.slots
        assert {name for name, _ in slots} == {"x"} and len(slots) == 2


@pytest.mark.parametrize("serialized", [b"\xff\xff\xff", b""])
def test_a_broken_graph(tmp_path, serialized):
    with pytest.raises(ValueError):
        parse_object_graph(serialized)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        names, tensors = ["x", OBJECT_GRAPH], [tf.constant(1.0), tf.constant(serialized)]
        saved = dict(tensor_names=names, shape_and_slices=["", ""], tensors=tensors)
        session.run(tf.raw_ops.SaveV2(prefix=str(tmp_path / "model"), **saved))
    checkpoint = open_checkpoint(tmp_path / "model")
    assert list(checkpoint.tensors) == ["x"]
    with pytest.raises(CheckpointError, match="its object graph cannot be read"):
        _ = checkpoint.object_graph
