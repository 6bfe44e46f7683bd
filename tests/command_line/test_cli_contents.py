"""Tests of `named_contents`, which finds optimizers and slots in name-based checkpoints."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import compat, versions
from legacy_opt.compat.state.checkpoint_contents import stored
from legacy_opt.compat.state.checkpoint_contents.named import named_contents
from legacy_opt.compat.state.checkpoint_files.tensor_info import TensorInfo
from legacy_opt.optimizers import catalogue
from tests.support.cases import CASES, one_of_each_class
from tests.support.keras.keras_apis import OPTIMIZER_V2

v1 = tf.compat.v1
SHAPES = {"dense/kernel": (3, 4), "dense/bias": (4,), "scale": ()}


def info(*shape, **options):
    dtype = options.get("dtype", tf.float32).base_dtype
    return TensorInfo(dtype.name, shape, int(np.prod(shape)) * dtype.size)


def tensors_of(train, shapes=None, use_resource=None):
    """Returns {name: `TensorInfo`} of the global variables of a graph that `train` builds."""
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        variables = [
            v1.get_variable(name, shape, use_resource=use_resource)
            for name, shape in (shapes or SHAPES).items()
        ]
        train(step, variables)
        return {
            variable.op.name: info(*variable.shape.as_list(), dtype=variable.dtype)
            for variable in v1.global_variables()
        }


def minimizing(make):
    def train(step, variables):
        loss = tf.add_n([tf.reduce_sum(variable * variable) for variable in variables])
        make(step).minimize(loss, step, variables)

    return train


TRAIN = v1.train
OPTIMIZERS = {
    "Adam": lambda step: TRAIN.AdamOptimizer(),
    "Adagrad": lambda step: TRAIN.AdagradOptimizer(0.1),
    "Momentum": lambda step: TRAIN.MomentumOptimizer(0.1, 0.9),
    "RMSProp": lambda step: TRAIN.RMSPropOptimizer(0.1),
    "centered RMSProp": lambda step: TRAIN.RMSPropOptimizer(0.1, centered=True),
    "Adadelta": lambda step: TRAIN.AdadeltaOptimizer(0.1),
    "Ftrl": lambda step: TRAIN.FtrlOptimizer(0.1),
    "ProximalAdagrad": lambda step: TRAIN.ProximalAdagradOptimizer(0.1),
    "AdagradDA": lambda step: TRAIN.AdagradDAOptimizer(0.1, step),
    "AdagradDecay, V1 layout": lambda step: legacy_opt.AdagradDecayOptimizer(0.1, step),
    "AdagradDecay, V2 layout": lambda step: legacy_opt.AdagradDecayOptimizerV2(0.1, step),
}
OF_CONTRIB = {}
if versions.has_contrib():
    contrib = tf.contrib.opt
    OF_CONTRIB.update(
        {
            "AdaMax": lambda step: contrib.AdaMaxOptimizer(),
            "AdamW": lambda step: contrib.AdamWOptimizer(0.01),
            "Nadam": lambda step: contrib.NadamOptimizer(name="Nadam"),
            "Adam without powers of beta, as AdamGS": lambda s: contrib.AdamGSOptimizer(s),
            "AddSign": lambda step: contrib.AddSignOptimizer(),
            "PowerSign": lambda step: contrib.PowerSignOptimizer(),
            "LARS": lambda step: contrib.LARSOptimizer(0.1),
            "RegAdagrad": lambda step: contrib.RegAdagradOptimizer(0.1),
        }
    )

# {label: optimizers of legacy_opt}. Optimizers whose tensors have the same names share a label.
OURS = {
    "Adam": [lambda step: legacy_opt.LazyAdamOptimizer(), lambda step: legacy_opt.NadamOptimizer()],
    "Adam without powers of beta, as AdamGS": [
        lambda step: legacy_opt.AdamGSOptimizer(step),
        lambda step: legacy_opt.LazyAdamGSOptimizer(step),
    ],
    "AdaMax": [lambda step: legacy_opt.AdaMaxOptimizer()],
    "AdamAsync": [lambda step: legacy_opt.AdamAsyncOptimizer()],
    "DiffGrad": [lambda step: legacy_opt.DiffGradOptimizer()],
    "Lion": [lambda step: legacy_opt.LionOptimizer()],
    "COCOB": [lambda step: legacy_opt.COCOBOptimizer()],
    "AdamW": [lambda step: legacy_opt.AdamWOptimizer(0.01)],
    "MomentumW": [lambda step: legacy_opt.MomentumWOptimizer(0.01, 0.1, 0.9)],
    "BERT's AdamWeightDecay or LAMB": [
        lambda step: legacy_opt.AdamWeightDecayOptimizer(0.1),
        lambda step: legacy_opt.LAMBOptimizer(0.1),
    ],
    "LARS": [lambda step: legacy_opt.LARSOptimizer(0.1)],
    "AddSign": [lambda step: legacy_opt.AddSignOptimizer()],
    "PowerSign": [lambda step: legacy_opt.PowerSignOptimizer()],
    "RegAdagrad": [lambda step: legacy_opt.RegAdagradOptimizer(0.1)],
    "Shampoo": [
        lambda step: legacy_opt.ShampooOptimizer(step),
        lambda step: legacy_opt.ShampooOptimizer(step, svd_interval=20),
        lambda step: legacy_opt.ShampooOptimizer(step, max_matrix_size=3, svd_interval=20),
    ],
    "Adafactor": [
        lambda step: legacy_opt.AdafactorOptimizer(),
        lambda step: legacy_opt.AdafactorOptimizer(beta1=0.9),
        lambda step: legacy_opt.AdafactorOptimizer(factored=False),
    ],
}
MADE = [
    pytest.param(label, make, id=f"{home}{label}-{number}")
    for home, every in (("", OPTIMIZERS), ("contrib ", OF_CONTRIB), ("our ", OURS))
    for label, makers in sorted(every.items())
    for number, make in enumerate(makers if isinstance(makers, list) else [makers])
]


def slot_roles(variable):
    return {slot.suffix: slot.role for slot in variable.slots}


@pytest.mark.parametrize("label, make", MADE)
def test_optimizers_are_recognized_by_their_slots(label, make):
    """Compares the found slots with the optimizer's `get_slot`."""
    expected = {}

    def train(step, variables):
        optimizer = make(step)
        minimizing(lambda step: optimizer)(step, variables)
        for variable, slot in itertools.product(variables, optimizer.get_slot_names()):
            found = optimizer.get_slot(variable, slot)
            if found is not None:
                expected[found.op.name] = (variable.op.name, slot)

    found = named_contents(tensors_of(train))
    (guess,) = found.optimizers
    assert (guess.label, guess.variables, guess.scope) == (label, 3, "")
    found_slots = {
        slot.item.name: (variable.item.name, slot.role)
        for variable in found.variables
        for slot in variable.slots
    }
    assert found_slots == expected
    assert found.step.name == "global_step"
    assert {item.name.split("_")[0] for item in found.shared} <= {"beta1", "beta2"}
    assert {variable.item.name for variable in found.variables} == set(SHAPES)


PUBLIC = [
    name
    for name in one_of_each_class()
    if CASES[name].optimizer.__name__ in catalogue.__all__
    if name != "ConditionalGradient"  # it has no slots
]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_optimizer_is_recognized(name):
    found = named_contents(tensors_of(minimizing(CASES[name].make))).optimizers
    assert found and not any(guess.label.startswith("unknown") for guess in found)


def test_a_checkpoint_without_slots():
    found = named_contents(tensors_of(minimizing(lambda step: TRAIN.GradientDescentOptimizer(0.1))))
    assert found.optimizers == ()
    assert [variable.slots for variable in found.variables] == [(), (), ()]


@pytest.mark.parametrize(
    ["make", "label"],
    [
        (lambda step: TRAIN.AdamOptimizer(name="Mine"), "Adam"),
        (lambda step: TRAIN.AdagradOptimizer(0.1, name="Mine"), "Adagrad or Momentum"),
        (
            lambda step: legacy_opt.AdagradDecayOptimizerV2(0.1, step, name="Mine"),
            "AdagradDecay, V2 layout",
        ),
    ],
)
def test_an_optimizer_with_a_custom_name_is_unknown_but_compared(make, label):
    (guess,) = named_contents(tensors_of(minimizing(make))).optimizers
    assert guess.label == "unknown, with slots like those of " + label
    assert guess.name == "Mine"


def test_unknown_slots():
    tensors = {"x": info(3), "x/Odd": info(3), "x/Odd_1": info(3), "x/Odd_2": info(3)}
    found = named_contents(tensors)
    assert [guess.label for guess in found.optimizers] == ["unknown, with 3 slots per variable"]
    assert slot_roles(found.variables[0]) == {"Odd": None, "Odd_1": None, "Odd_2": None}


def test_the_decay_layouts_of_vectors_look_the_same():
    shapes = {"bias": (4,)}
    train = minimizing(lambda step: legacy_opt.AdagradDecayOptimizer(0.1, step))
    (guess,) = named_contents(tensors_of(train, shapes)).optimizers
    assert guess.label == "AdagradDecay, V1 layout or AdagradDecay, V2 layout"


def test_both_layouts_in_one_checkpoint():
    def train(step, variables):
        for variable, cls in zip(
            variables,
            (legacy_opt.AdagradDecayOptimizer, legacy_opt.AdagradDecayOptimizerV2),
        ):
            minimizing(lambda step, cls=cls: cls(0.1, step))(step, [variable])

    shapes = {"one": (3, 2), "two": (3, 2)}
    found = named_contents(tensors_of(train, shapes)).optimizers
    assert [(guess.label[-9:], guess.variables) for guess in found] == [
        ("V1 layout", 1),
        ("V2 layout", 1),
    ]


def test_two_adams_on_the_same_variables():
    def train(step, variables):
        for _ in range(2):
            minimizing(lambda step: TRAIN.AdamOptimizer())(step, variables)

    found = named_contents(tensors_of(train))
    assert [guess.label for guess in found.optimizers] == ["Adam, two of them"]
    assert len(found.shared) == 4
    assert list(slot_roles(found.variables[0]).values()) == ["m", "v", "m", "v"]


def test_the_scope_of_optimize_loss():
    def train(step, variables):
        with v1.variable_scope("OptimizeLoss"):
            minimizing(lambda step: TRAIN.AdamOptimizer())(step, variables)

    found = named_contents(tensors_of(train))
    assert [(guess.label, guess.scope) for guess in found.optimizers] == [("Adam", "OptimizeLoss")]
    assert {item.name for item in found.shared} == {
        "OptimizeLoss/beta1_power",
        "OptimizeLoss/beta2_power",
    }
    names = [slot.item.name for slot in found.variables[1].slots]
    assert names == ["OptimizeLoss/dense/kernel/Adam", "OptimizeLoss/dense/kernel/Adam_1"]


def test_moving_averages_of_variables_and_of_slots():
    def train(step, variables):
        optimizer = TRAIN.MomentumOptimizer(0.1, 0.9)
        minimizing(lambda step: optimizer)(step, variables)
        slots = [optimizer.get_slot(variable, "momentum") for variable in variables]
        TRAIN.ExponentialMovingAverage(0.9).apply(variables + slots)

    found = named_contents(tensors_of(train))
    assert {guess.label for guess in found.optimizers} >= {"Momentum", "moving averages"}
    assert set(slot_roles(found.variables[0])) == {
        "Momentum",
        "ExponentialMovingAverage",
        "Momentum/ExponentialMovingAverage",
    }


def test_averages_and_slow_weights_of_wrappers():
    def train(step, variables):
        inner = legacy_opt.SWAOptimizer(TRAIN.MomentumOptimizer(0.1, 0.9))
        minimizing(lambda step: legacy_opt.LookaheadOptimizer(inner))(step, variables)

    found = named_contents(tensors_of(train))
    labels = {guess.label for guess in found.optimizers}
    assert labels == {"Momentum", "averages of SWA", "slow weights of Lookahead"}
    roles = {"Momentum": "momentum", "SWA": "average", "Lookahead": "slow"}
    found_roles = [slot_roles(variable) for variable in found.variables]
    assert roles in found_roles and all(each in ({}, roles) for each in found_roles)


def test_deeprecs_adam_async_and_berts_adam():
    tensors = {"x": info(5, 2), "y": info(5, 2), "y/adam_m": info(5, 2), "y/adam_v": info(5, 2)}
    tensors.update({"x/AdamAsync": info(5, 2), "x/AdamAsync_1": info(5, 2)})
    tensors.update({"x/AdamAsync_2": info(), "x/AdamAsync_3": info()})
    found = named_contents(tensors)
    labels = {guess.label for guess in found.optimizers}
    assert labels == {"AdamAsync", "BERT's AdamWeightDecay or LAMB"}
    assert slot_roles(found.variables[0])["AdamAsync_3"] == "beta2_power"
    assert slot_roles(found.variables[1]) == {"adam_m": "m", "adam_v": "v"}


def test_a_variable_in_the_scope_of_another_is_not_a_slot():
    tensors = {"a/w": info(3, 2), "a/w/gain": info(7), "b/a/w": info(3, 2), "w": info(3, 2)}
    found = named_contents(tensors)
    assert [variable.item.name for variable in found.variables] == sorted(tensors)


def test_order_of_slots_is_by_number():
    tensors = {"x": info(2)}
    tensors.update({"x/Odd" + end: info(2) for end in [""] + [f"_{n}" for n in range(1, 12)]})
    (variable,) = named_contents(tensors).variables
    assert [slot.suffix for slot in variable.slots][8:] == ["Odd_8", "Odd_9", "Odd_10", "Odd_11"]


def test_parts_are_put_together():
    tensors = {}
    for number, rows in enumerate([3, 3, 2]):
        part = f"x/part_{number}"
        tensors.update({part: info(rows, 4), part + "/Adam": info(rows, 4)})
        tensors.update({part + "/Adam_1": info(rows, 4), part + "/AdamAsync_2": info()})
    tensors.update(beta1_power=info(), beta2_power=info())
    (variable,) = named_contents(tensors).variables
    assert (variable.item.name, variable.item.shape) == ("x", (8, 4))
    assert variable.item.stored.names == ("x/part_0", "x/part_1", "x/part_2")
    assert (variable.item.stored.numbers, variable.item.stored.bytes) == (32, 128)
    shapes = [(slot.suffix, slot.item.shape) for slot in variable.slots]
    assert shapes == [("Adam", (8, 4)), ("Adam_1", (8, 4)), ("AdamAsync_2", ())]


def test_parts_are_sorted_by_number():
    tensors = {f"x/part_{number}": info(1, 2) for number in range(12)}
    (variable,) = named_contents(tensors).variables
    assert variable.item.stored.names == tuple(f"x/part_{number}" for number in range(12))


@pytest.mark.parametrize(
    ["shapes", "whole"],
    [
        ([(3, 4), (2, 4)], (5, 4)),
        ([(3, 4), (3, 2)], (3, 6)),
        ([(3, 4), (3, 4)], (6, 4)),
        ([(3, 4), (2, 5)], None),
        ([(3, 4), (3,)], None),
        ([(), ()], None),
    ],
)
def test_joined_shape(shapes, whole):
    axis = stored.joined_axis(shapes)
    assert whole == (None if axis is None else stored.joined_shape(shapes, axis))


def test_slices_of_columns_with_mangled_names():
    """TensorFlow saves the slot OptimizeLoss/w/part_0/Adafactor_1 as w/oss/w/part_0/Adafactor_1."""
    tensors = {"OptimizeLoss/beta1_power": info(), "w": info(8, 6)}
    for number in range(2):
        part = (((3,), (3 * number,)),)
        tensors[f"w/oss/w/part_{number}/Adafactor_1"] = info(6)._replace(parts=part)
    (variable,) = named_contents(tensors).variables
    (slot,) = variable.slots
    assert (slot.item.name, slot.item.shape) == ("OptimizeLoss/w/Adafactor_1", (6,))
    assert (slot.item.kind, len(slot.item.stored.names)) == ("parts", 2)


def test_a_slot_that_lacks_slices_is_not_joined():
    tensors = {"w": info(8, 6), "w/oss/w/part_0/Adam": info(8, 6)}
    slices = (((4, 6), (0, 0)),)
    tensors["w/oss/w/part_0/Adam"] = tensors["w/oss/w/part_0/Adam"]._replace(parts=slices)
    (variable,) = named_contents(tensors).variables
    assert [slot.item.kind for slot in variable.slots] == ["incomplete"]


@pytest.mark.parametrize("names", [["x/part_0", "x/part_2"], ["x/part_1"], ["x", "x/part_0"]])
def test_incomplete_parts_are_not_put_together(names):
    found = named_contents({name: info(2, 3) for name in names})
    assert sorted(item.name for item in found.items()) == sorted(names)


def test_slots_of_a_variable_partitioned_by_columns():
    tensors = {}
    for number, columns in enumerate([3, 2]):
        part = f"x/part_{number}"
        tensors.update({part: info(8, columns), part + "/AdagradDecay": info(8, columns)})
        tensors.update({part + "/AdagradDecay_1": info(8, columns, dtype=tf.int64)})
    found = named_contents(tensors)
    assert found.optimizers[0].label == "AdagradDecay, V1 layout"
    assert [slot.item.shape for slot in found.variables[0].slots] == [(8, 5), (8, 5)]


def test_slots_of_parts_belong_to_the_unpartitioned_variable():
    tensors = {"x": info(8, 4)}
    tensors.update({f"x/part_{number}/AdamAsync_2": info() for number in range(3)})
    (variable,) = named_contents(tensors).variables
    assert variable.item.name == "x"
    (slot,) = variable.slots
    assert (slot.item.name, slot.item.shape) == ("x/AdamAsync_2", ())
    assert slot.item.stored.names == tuple(sorted(set(tensors) - {"x"}))


def test_embedding_variables_of_deeprec():
    tensors = {"dense/kernel": info(3, 2), "global_step": info(dtype=tf.int64)}
    for number, rows in enumerate([10, 7]):
        for slot in ("", "/Adagrad"):
            name = f"emb/part_{number}{slot}"
            tensors[name + "-keys"] = info(rows, dtype=tf.int64)
            tensors[name + "-values"] = info(rows, 16)
            tensors[name + "-freqs"] = info(rows, dtype=tf.int64)
            tensors[name + "-versions"] = info(rows, dtype=tf.int64)
            tensors[name + "-partition_offset"] = info(1001, dtype=tf.int32)
    found = named_contents(tensors)
    emb = found.variables[1]
    assert (emb.item.name, emb.item.kind) == ("emb", "EmbeddingVariable")
    assert emb.item.shape == (17, 16)
    assert emb.item.stored.bytes == 17 * (8 + 16 * 4 + 8 + 8) + 2 * 1001 * 4
    assert len(emb.item.stored.names) == 10
    (slot,) = emb.slots
    assert (slot.item.name, slot.item.kind, slot.role) == (
        "emb/Adagrad",
        "EmbeddingVariable",
        "accumulator",
    )
    assert sum(len(item.stored.names) for item in found.items()) == len(tensors)


def test_a_variable_named_like_an_embedding_variable_is_a_tensor():
    found = named_contents({"x-keys": info(3), "y-values": info(3, 2)})
    assert [variable.item.kind for variable in found.variables] == ["tensor", "tensor"]


@pytest.mark.parametrize(
    ["names", "step"],
    [
        (["tower/global_step", "global_step"], "global_step"),
        (["tower/global_step"], "tower/global_step"),
        (["step"], None),
    ],
)
def test_the_global_step_is_found_by_name(names, step):
    found = named_contents({name: info(dtype=tf.int64) for name in names})
    assert (found.step and found.step.name) == step


def test_a_float_or_a_vector_is_not_the_global_step():
    assert named_contents({"global_step": info()}).step is None
    assert named_contents({"global_step": info(3, dtype=tf.int64)}).step is None


def test_sizes_of_strings_and_of_unknown_dtypes():
    found = named_contents(
        {"words": TensorInfo("string", (3,), 20), "odd": TensorInfo("type 99", (4,), 16)}
    )
    sizes = {item.name: (item.stored.numbers, item.stored.bytes) for item in found.items()}
    assert sizes == {"words": (3, 0), "odd": (4, 0)}


KERAS = OPTIMIZER_V2.optimizers
OF_KERAS = {
    "Adam": (lambda: KERAS.Adam(0.1), {"m", "v"}),
    "SGD with momentum": (lambda: KERAS.SGD(0.1, momentum=0.9), {"momentum"}),
}
if versions.keras_facts()["generation"] == 3:
    OF_KERAS["Adam, called mine with keras3"] = (
        lambda: tf.keras.optimizers.Adam(0.1, name="mine"),
        {"momentum", "velocity"},
    )


@pytest.mark.parametrize("label", sorted(OF_KERAS))
@pytest.mark.parametrize("times", [1, 2])
def test_keras_optimizers_in_graphs(label, times):
    make, roles = OF_KERAS[label]
    optimizers = [compat.to_v1(make()) for _ in range(times)]

    def train(step, variables):
        for optimizer in optimizers:
            minimizing(lambda step, each=optimizer: each)(step, variables)

    tensors = tensors_of(train, use_resource=True)
    found = named_contents(tensors)
    label = f"Keras' {label.split(',')[0]} in a TF1 graph (to_v1)"
    name = optimizers[0].get_name()
    assert [tuple(each) for each in found.optimizers] == [
        (label + (", more than one" if times == 2 else ""), name, "", 3)
    ]
    for variable in found.variables:
        expected_roles = {
            f"{variable.item.name}/{name}/{role}{number}": role
            for role in roles
            for number in ["", "_1"][:times]
        }
        assert {slot.item.name: slot.role for slot in variable.slots} == expected_roles
    assert {variable.item.name for variable in found.variables} == set(SHAPES)
    assert found.step.name == "global_step"
    shared = {each for each in tensors if each.startswith(name + "/")}
    assert {item.name for item in found.shared} == shared and len(shared) >= 2 * times


def test_a_scope_of_the_model_is_not_a_keras_optimizer():
    tensors = {"tower/iter": info(dtype=tf.int64), "tower/scale": info(), "tower/kernel": info(3)}
    found = named_contents(tensors)
    assert {each.item.name for each in found.variables} == {"tower/scale", "tower/kernel"}
    assert (found.step.name, found.shared, found.optimizers) == ("tower/iter", (), ())
