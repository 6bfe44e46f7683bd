"""Tests what optimizers of arrays do with memory, shapes and steps that do not fit."""

import json

import numpy as np
import pytest

from legacy_opt import recorded
from legacy_opt.recorded import state_files
from legacy_opt.recorded.arrays.interpreter import ArrayUpdate
from legacy_opt.recorded.native import Job, NativeOptimizer
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows
from tests.support.checkpoints.v1_checkpoints import write_tensors

BOTH = pytest.mark.parametrize("cls", [NumpyOptimizer, NativeOptimizer])
GRADIENT = np.arange(12, dtype=np.float32).reshape(4, 3)


def made(cls, name="AdamOptimizer"):
    optimizer = cls(recorded.load(name), {"v": np.ones(2, "f4"), "w": np.ones((4, 3), "f4")})
    optimizer.step({"v": np.ones(2, "f4"), "w": GRADIENT})
    return optimizer


def refused(problem, function, *args):
    with pytest.raises(recorded.RecordError, match=problem):
        function(*args)


@BOTH
@pytest.mark.parametrize(
    "slot",
    [np.ones((3, 4), "f4"), np.ones((2, 3), "f4"), np.ones((0, 3), "f4"), np.ones((4, 3), ">f4")],
)
def test_slots_that_do_not_fit(cls, slot):
    optimizer = made(cls)
    optimizer.state.slots["w"]["m"] = slot
    before = {name: array.copy() for name, array in optimizer.variables.items()}
    for gradient in GRADIENT, Rows(np.array([1, 3]), GRADIENT[:2]):
        gradients = {"v": np.ones(2, "f4"), "w": gradient}
        refused("'w/m' is .* expected float32 of the shape", optimizer.step, gradients)
    np.testing.assert_equal(optimizer.variables, before)
    assert optimizer.state.global_step == 1


@pytest.mark.parametrize("name", ["AdamOptimizer", "MomentumOptimizer", "AdagradOptimizer"])
@pytest.mark.parametrize("place", ["variable", "part of it", "slot", "reversed"])
def test_gradients_in_the_memory_of_what_is_updated(name, place):
    found = []
    for cls in NumpyOptimizer, NativeOptimizer:
        memory = np.arange(15, dtype=np.float32).reshape(5, 3) + 1
        optimizer = cls(recorded.load(name), {"w": memory[1:]})
        for _ in range(3):
            slot = next(iter(optimizer.state.slots["w"].values()))
            gradient = {
                "variable": memory[1:],
                "part of it": memory[:-1],
                "slot": slot,
                "reversed": memory[:0:-1],
            }[place]
            optimizer.step({"w": gradient.copy() if cls is NumpyOptimizer else gradient})
        found.append((memory, optimizer.state.slots))
    np.testing.assert_equal(*found)


def test_slots_in_the_memory_of_others():
    optimizer = made(NativeOptimizer)
    slots = optimizer.state.slots["w"]
    for other, problem in (
        (optimizer.variables["w"], "'w/v' and 'w' are the same memory"),
        (slots["m"], "'w/m' and 'w/v' are the same memory"),
        (np.zeros(49, np.uint8)[1:].view("f4").reshape(4, 3), "'w/v' is not a contiguous array"),
    ):
        slots["v"] = other
        refused(problem, optimizer.step, {"w": GRADIENT})


def test_the_door_to_kernels_checks_gradients():
    optimizer = made(NativeOptimizer)
    group = optimizer.record.group_of("w", (4, 3))

    def update(program, gradient):
        variable, slots = optimizer.variables["w"], optimizer.state.slots["w"]
        update = ArrayUpdate("w", group, program, variable, gradient, slots)
        Job(optimizer._kernels, update)

    for wrong in GRADIENT[:2], GRADIENT.astype("f8"), GRADIENT.T:
        refused("'w': the gradient is .*, expected float32", update, group.dense, wrong)
    refused("the id 4 is not", update, group.sparse, Rows(np.array([4]), GRADIENT[:1]))
    refused("the gradient is", update, group.sparse, Rows(np.array([0, 1]), GRADIENT[:1]))


@BOTH
@pytest.mark.parametrize("step", [1.5, float("nan"), np.float32(0.5)])
def test_steps_that_are_no_whole_numbers(cls, step, tmp_path):
    optimizer = made(cls, "LAMBOptimizer")
    state = state_files.state_of(optimizer)._replace(global_step=step)
    problem = "the global step must be a whole number, got (1.5|nan|0.5)"
    refused(problem, state_files.load_into, optimizer, state)
    refused(problem, state_files.write, tmp_path / "s.npz", state)
    optimizer = made(cls, "AdagradDecayOptimizer")
    optimizer.state.global_step = step
    refused(problem, optimizer.step, {"w": GRADIENT})


def test_a_checkpoint_with_a_step_that_is_no_whole_number(screen, tmp_path):
    rule = tmp_path / "rule.json"
    recorded.save(recorded.load("GradientDescentOptimizer"), rule)
    out = tmp_path / "s.npz"
    words = [
        ["export", write_tensors(tmp_path / name, {"w": np.ones(2, "f4"), "global_step": step})]
        + ["--rule", rule, "--out", out]
        for name, step in (("half", np.float32(2.5)), ("whole", np.float32(3)))
    ]
    assert "must be a whole number, got 2.5" in screen.refused(*words[0]) and not out.exists()
    assert screen.json(*words[1])["step"] == 3 == state_files.read(out).global_step


@BOTH
def test_states_whose_slots_do_not_fit(cls):
    optimizer = made(cls)
    state = state_files.state_of(optimizer)
    before = json.dumps(repr(optimizer.state.slots))
    for wrong in np.ones((3, 4), "f4"), np.ones(3, "f4"), np.ones((4, 3), "f8"):
        slots = dict(state.slots, w=dict(state.slots["w"], v=wrong))
        changed = state._replace(slots=slots, global_step=9)
        refused("'w/v' is .*, expected float32", state_files.load_into, optimizer, changed)
    refused(
        "'w' has no slot 'v'",
        state_files.load_into,
        optimizer,
        state._replace(slots=dict(state.slots, w={"m": GRADIENT})),
    )
    assert json.dumps(repr(optimizer.state.slots)) == before and optimizer.state.global_step == 1


def test_another_order_of_bytes(tmp_path):
    optimizer = made(NumpyOptimizer)
    state = state_files.state_of(optimizer)
    swapped = state._replace(
        variables={name: each.astype(">f4") for name, each in state.variables.items()},
        slots={
            name: {slot: array.astype(">f4") for slot, array in slots.items()}
            for name, slots in state.slots.items()
        },
    )
    state_files.write(tmp_path / "s.npz", swapped)
    found = state_files.read(tmp_path / "s.npz")
    np.testing.assert_equal(found.slots, state.slots)
    np.testing.assert_equal(found.variables, state.variables)
    assert found.variables["w"].dtype == np.float32 and found.slots["w"]["m"].dtype == np.float32


def test_arrays_of_one_name(tmp_path):
    pairs = [("a", np.ones(1)), ("a", np.zeros(1))]
    refused("cannot have an array 'a'", state_files.write_arrays, tmp_path / "s.npz", pairs)
