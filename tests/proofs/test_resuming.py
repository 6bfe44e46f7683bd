"""Tests comparisons of states around a save and a load; tests/recorded has those of PyTorch."""

import numpy as np
import pytest

from legacy_opt import proofs, recorded
from legacy_opt.recorded import state_files
from legacy_opt.recorded.numpy import NumpyOptimizer
from legacy_opt.recorded.proofs.proof import End

ADAM = recorded.load("AdamOptimizer")
pytestmark = pytest.mark.once  # does not need TensorFlow


def trained(steps=6, before=3):
    """Returns the state after some steps of Adam, and a proof of the later steps."""
    drawn = proofs.draw(ADAM, seed=1, steps=steps)
    variables = {name: array.copy() for name, array in drawn.start.variables.items()}
    optimizer = NumpyOptimizer(ADAM, variables, **drawn.hyperparameters[0])
    state, ends = None, {}
    for i, (gradients, values) in enumerate(zip(drawn.gradients, drawn.hyperparameters)):
        if i == before:
            state = state_files.state_of(optimizer)
        optimizer.hyperparameters.update(values)
        optimizer.step(gradients)
        if i >= before:
            values = {name: array.copy() for name, array in variables.items()}
            ends[i - before + 1] = End(values, {}, {})
    hyperparameters, gradients = (
        each[before:] for each in (drawn.hyperparameters, drawn.gradients)
    )
    last = state_files.state_of(optimizer)
    proof = proofs.Proof(state, hyperparameters, gradients, ends, last=last)
    return state, proof


def changed(state, slot, value, variable=None):
    """Returns a state with another value of a slot of the first variable."""
    variable = variable or next(iter(state.slots))
    slots = {name: dict(each) for name, each in state.slots.items()}
    slots[variable][slot] = value
    return state._replace(slots=slots)


def first_of(before, after, **arguments):
    resumed = proofs.resume(before, after, **arguments)
    assert resumed.name == (proofs.DIFFERS if resumed.findings else proofs.EQUAL)
    return resumed.findings[0] if resumed.findings else None


def bfloat16(x):
    """Rounds to the nearest number of bfloat16, or to the even one."""
    found = []
    for each in x.ravel():
        mantissa, exponent = np.frexp(each)
        found.append(np.ldexp(np.round(mantissa * 256), exponent) / 256)
    return np.array(found, "float32").reshape(x.shape)


TIES = np.array([1 + 2**-8, 1 + 3 * 2**-8, 3.3], "float32")  # between two numbers of bfloat16
ROWS = np.random.RandomState(0).randn(6, 6).astype("float32")
OTHER = np.random.RandomState(1).randn(6, 6).astype("float32")


@pytest.mark.parametrize(
    "after, cause, text",
    [
        (ROWS, None, None),
        (np.zeros_like(ROWS), "lost", "a is lost: all elements are 0"),
        (np.full_like(ROWS, 0.1), "lost", "a is lost: all elements are 0.1"),
        (np.full_like(ROWS, 0.2), "", "a differs in 36 of 36 elements"),
        (bfloat16(ROWS), "cast", "a was cast to bfloat16"),
        (ROWS.astype("float16"), "cast", "a was cast to float16"),
        (ROWS.astype("float64"), "cast", "a was cast to float64, with the same values"),
        (OTHER, "moved", "a has the value of b"),
        (ROWS.T, "transposed", "a is transposed: its axes are [1, 0]"),
        (
            ROWS.T.reshape(4, 9).reshape(6, 6)[:, ::-1],
            "",
            "a differs in 36 of 36 elements",
        ),
        (
            np.roll(ROWS, 2, 0),
            "reordered",
            "a has the parts of axis 0 in another order: 4 to 5, 0 to 3",
        ),
        (
            np.roll(ROWS, 1, 1),
            "reordered",
            "a has the parts of axis 1 in another order: 5 to 5, 0 to 4",
        ),
        (-ROWS, "", "a differs in 36 of 36 elements"),
        (ROWS + np.eye(6, dtype="float32"), "", "a differs in 6 of 36 elements"),
        (ROWS[:4], "", "a has the shape [4, 6] instead of [6, 6]"),
    ],
)
def test_a_change_is_named_if_it_gives_the_array(after, cause, text):
    found = first_of({"a": ROWS, "b": OTHER}, {"a": after, "b": OTHER})
    assert (found and (found.variable, found.cause, found.text)) == (text and ("a", cause, text))


def test_the_memory_of_a_transpose():
    x = np.arange(6, dtype="float32").reshape(2, 3)
    found = first_of({"a": x}, {"a": x.T.reshape(2, 3).copy()})
    assert found.text == "a is the memory of its transpose, in the old shape"


def test_missing_arrays_and_numbers_between_others():
    found = first_of({"a": ROWS, "c": ROWS}, {"b": ROWS, "c": OTHER})
    assert (found.cause, found.text) == ("moved", "a is missing; its value is in b")
    assert first_of({"a": ROWS, "c": OTHER}, {"c": OTHER}).text == "a is missing"
    assert first_of({"a": ROWS, "c": ROWS}, {"c": ROWS}).text == "a is missing"  # c had it before
    assert first_of({"a": TIES}, {"a": bfloat16(TIES)}).text == "a was cast to bfloat16"


def test_texts():
    before, after = ({"a": ROWS, "b": np.array(text)} for text in "xy")
    assert first_of(before, after).text == "b is y instead of x"


def test_zeros_are_no_evidence_of_a_move():
    zeros = np.zeros_like(ROWS)
    found = first_of({"a": ROWS, "b": zeros}, {"a": zeros, "b": zeros})
    assert found.cause == "lost"


def test_small_numbers_are_lost_not_cast():
    found = first_of({"a": ROWS * np.float32(1e-10)}, {"a": np.zeros_like(ROWS)})
    assert found.cause == "lost"


def test_states_of_a_rule():
    state, _ = trained()
    name = next(iter(state.slots))
    m, v = state.slots[name]["m"], state.slots[name]["v"]
    assert proofs.resume(state, state)[:3] == (proofs.EQUAL, 3, [])
    found = first_of(state, changed(state, "m", v))
    assert found[:3] == (name, "m", "moved")
    assert found.text == f"m of {name} has the value of v of {name}"
    assert first_of(state, state._replace(global_step=0)).text == (
        "global_step is 0 instead of 3: it was reset"
    )
    powers = np.multiply.accumulate(np.full(4, 0.9, "float32"))
    shared = [dict(state.shared, beta1_power=power) for power in powers]
    first, _, third, fourth = (state._replace(shared=each) for each in shared)
    assert first_of(fourth, first)[1:3] == ("beta1_power", "lost")
    assert first_of(fourth, third)[1:3] == ("beta1_power", "step")
    several = changed(state, "m", bfloat16(m))._replace(global_step=4)
    assert [each.cause for each in proofs.resume(state, several).findings] == ["cast", "step"]


def test_recorded_steps():
    state, proof = trained()
    name = next(iter(state.slots))
    resumed = proofs.resume(state, state, steps=proof)
    assert (resumed.name, resumed.verdict.name) == (proofs.EQUAL, proofs.EQUAL)
    assert proofs.resume(state, proof.start, steps=proof).verdict.name == proofs.EQUAL
    first, whole = trained(before=0)
    assert proofs.resume(first, first, steps=whole).verdict.name == proofs.EQUAL
    late = state._replace(global_step=3, shared=dict(state.shared, beta2_power=np.float32(0.5)))
    resumed = proofs.resume(late, late, steps=proof)  # the same, but wrong after one step
    assert (resumed.name, resumed.findings) == (proofs.DIFFERS, [])
    assert resumed.verdict.place.step == 1
    ends = {
        step: end._replace(values=dict(end.values, **{name: state.variables[name]}))
        for step, end in proof.ends.items()
    }
    frozen = proofs.resume(state, state, steps=proof._replace(ends=ends)).verdict
    assert (frozen.name, frozen.place.step, frozen.place.variable) == (proofs.DIFFERS, 1, name)


def tree_of(state, names):
    """Returns a state as the leaves of a tree of optax, by their places."""
    leaves = {"opt_state[0].count": np.int32(state.global_step)}
    for name, slots in state.slots.items():
        leaves[f"params['{names[name]}']"] = state.variables[name]
        for ours, other in ("m", "mu"), ("v", "nu"):
            leaves[f"opt_state[0].{other}['{names[name]}']"] = slots[ours]
    return leaves


def test_names_of_others():
    state, _ = trained()
    names = {name: f"layers/{i}" for i, name in enumerate(state.slots)}
    before, after = tree_of(state, {name: name for name in names}), tree_of(state, names)
    assert proofs.resume(before, after, name_map=names).findings == []
    after["opt_state[0].nu['layers/0']"] = np.zeros_like(after["opt_state[0].nu['layers/0']"])
    found = first_of(before, after, name_map=names)
    assert found[:3] == ("layers/0", "nu", "lost")
    after["opt_state[0].count"] = np.int32(0)
    assert proofs.resume(before, after, name_map=names).findings[-1].text == (
        "count is 0 instead of 3: it was reset"
    )
    cold = {name: x for name, x in after.items() if name.startswith("params")}
    assert first_of(before, cold, name_map=names).text == "mu of layers/0 is missing"
    with pytest.raises(proofs.ProofError, match="no variable in common.*Pass a name map"):
        proofs.resume(before, after)
    with pytest.raises(proofs.ProofError, match="'a' and 'b' would both be named 'b'"):
        proofs.resume({"a": ROWS, "b": OTHER}, {"b": OTHER}, name_map={"a": "b"})
    with pytest.raises(proofs.ProofError, match="the name map has 'x'"):
        proofs.resume(before, after, name_map={"x": "y"})


def test_other_libraries_are_refused():
    state, _ = trained()
    theirs = tree_of(state, {name: name for name in state.slots})
    with pytest.raises(proofs.ProofError, match="of JAX before, and of TensorFlow after"):
        proofs.resume(theirs, state)


def test_files(tmp_path):
    state, proof = trained()
    path, run = tmp_path / "state.npz", tmp_path / "run.proof"
    state_files.write(path, state)
    proofs.write_run(run, proofs.Run({"Adam": proof}))
    assert proofs.resume(path, run).findings == []
    assert first_of(run, path)[1:3] == ("", "")  # the last state, and the start
    with pytest.raises(proofs.ProofError, match="there is no such file"):
        proofs.resume(path, tmp_path / "none.pt")
    other = tmp_path / "text.txt"
    other.write_text("x")
    with pytest.raises(proofs.ProofError, match="is no file of PyTorch, state file or recorded"):
        proofs.resume(path, other)
