"""Tests what `export` and `import` refuse: other rules, missing slots, damaged files."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import recorded
from legacy_opt.recorded import state_files
from tests.support.checkpoints.v1_checkpoints import tensors, write_tensors

v1 = tf.compat.v1
ADAM = {
    "w": np.ones([4, 2], "f4"),
    "w/Adam": np.full([4, 2], 2, "f4"),
    "w/Adam_1": np.full([4, 2], 3, "f4"),
    "beta1_power": np.float32(0.9),
    "beta2_power": np.float32(0.99),
    "global_step": np.int64(7),
}
STEP = np.int64(5)
OPTIMIZERS = {
    "Adam": lambda: v1.train.AdamOptimizer(0.01),
    "GradientDescent": lambda: v1.train.GradientDescentOptimizer(0.01),
    "Momentum": lambda: v1.train.MomentumOptimizer(0.01, 0.9),
}


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    """Returns a dict from names of optimizers to files of their records."""
    found, folder = {}, tmp_path_factory.mktemp("rules")
    for name, make in OPTIMIZERS.items():
        found[name] = folder / f"{name}.json"
        with tf.Graph().as_default():
            recorded.save(recorded.record(make()), found[name])
    return found


def checkpoint(folder, **changes):
    """Writes a checkpoint of Adam, with other tensors; None as a value removes a tensor."""
    values = {name: value for name, value in {**ADAM, **changes}.items() if value is not None}
    return write_tensors(folder / "ckpt", values)


def without(*names):
    return dict.fromkeys(names)


@pytest.mark.parametrize(
    ["rule", "changes", "words"],
    [
        ("GradientDescent", {}, ["'w/Adam', 'w/Adam_1'", "does not belong"]),
        ("Momentum", {}, ["'w/Adam', 'w/Adam_1'", "does not belong"]),
        ("Momentum", without("w/Adam", "w/Adam_1"), ["no variable has its slots"]),
        ("Adam", without("w/Adam_1"), ["the slot 'w/Adam_1' is missing"]),
        ("Adam", without("beta1_power"), ["no scalar 'beta1_power'"]),
        ("Adam", {"w/Momentum": ADAM["w"]}, ["it has 'w/Momentum'"]),
        ("Adam", {"b": ADAM["w"], "Scope/b/Adam": ADAM["w"]}, ["the slot 'b/Adam_1' is missing"]),
        (
            "Adam",
            {"beta1_power": None, "a/beta1_power": ADAM["w"], "b/beta1_power": ADAM["w"]},
            ["no scalar 'beta1_power'", "can choose 'a/beta1_power', 'b/beta1_power'"],
        ),
        ("Adam", {"w/Adam": np.ones([4], "f4")}, ["'w/Adam' is float32 of the shape [4]"]),
        ("Adam", {"w/Adam": np.ones([4, 2])}, ["'w/Adam' is float64"]),
        ("Adam", {"w": np.ones([4, 2])}, ["'w' is float64, but the record is for float32"]),
        ("Adam", {"global_step": np.int64([1, 2])}, ["'global_step' is no scalar"]),
    ],
)
def test_another_rule(rule, changes, words, rules, screen, tmp_path):
    path, out = checkpoint(tmp_path, **changes), tmp_path / "state.npz"
    error = screen.refused("export", path, "--rule", rules[rule], "--out", out)
    assert all(word in error for word in words), error
    assert not out.exists()


def test_variables_that_are_not_trained(rules, screen, tmp_path):
    more = {
        "mean": np.float32([1, 2]),
        "w/ExponentialMovingAverage": ADAM["w"],
        "w/SWA": ADAM["w"],
        "w/Lookahead": ADAM["w"],
        "words": np.array([b"a", b"b"], object),
        "count": np.int32(3),
    }
    path, out = checkpoint(tmp_path, **more), tmp_path / "state.npz"
    facts = screen.json("export", path, "--rule", rules["Adam"], "--out", out)
    assert facts["variables"] == ["w"]
    assert facts["not_trained"] == ["count", "mean", *sorted(key for key in more if "w/" in key)]
    assert facts["left_out"] == ["words"]
    state = state_files.read(out)
    assert state.variables["count"] == 3 and list(state.slots) == ["w"]
    new = tmp_path / "new"
    del state.variables["mean"]
    state_files.write(
        out, state._replace(global_step=8, variables=dict(state.variables, count=np.int32(4)))
    )
    facts = screen.json("import", out, "--like", path, "--out", new)
    assert facts["kept"] == ["mean", "words"]
    expected, found = {**ADAM, **more, "global_step": 8, "count": 4}, tensors(new)
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)


def test_a_name_map(rules, screen, tmp_path):
    path, out = checkpoint(tmp_path, b=np.float32([1])), tmp_path / "state.npz"
    name_map = tmp_path / "map.json"
    command = ["export", path, "--rule", rules["Adam"], "--out", out, "--name-map", name_map]
    name_map.write_text('{"w": "dense/kernel", "b": null}')
    facts = screen.json(*command)
    assert (facts["variables"], facts["not_trained"], facts["left_out"]) == (
        ["dense/kernel"],
        [],
        ["b"],
    )
    assert set(state_files.read(out).slots) == {"dense/kernel"}
    for text, words in (
        ('{"x": "y"}', "there is no such variable"),
        ('{"w/Adam": "y"}', "there is no such variable"),
        ('{"w": "b"}', "two variables would have the name 'b'"),
    ):
        name_map.write_text(text)
        assert words in screen.refused(*command, "--overwrite")
    assert "exists already" in screen.refused(*command)


def test_two_optimizers_in_one_graph(rules, screen, tmp_path):
    other = {"v": ADAM["w"], "v/Adam": ADAM["w/Adam_1"], "v/Adam_1": ADAM["w/Adam"]}
    powers = {"beta1_power_1": np.float32(0.5), "beta2_power_1": np.float32(0.6)}
    path, out, new = checkpoint(tmp_path, **other, **powers), tmp_path / "s.npz", tmp_path / "new"
    command = ["export", path, "--rule", rules["Adam"], "--out", out]
    assert "'beta1_power' and 'beta1_power_1'" in screen.refused(*command)
    name_map = tmp_path / "map.json"
    first, second = dict.fromkeys([*powers, "v"]), {"w": None, "v": "moved"}
    for name in "beta1_power", "beta2_power":
        second.update({name: None, name + "_1": name})
    name_map.write_text(json.dumps(first))  # does not say which optimizer has trained w
    error = screen.refused(*command, "--name-map", name_map)
    assert "must have each variable" in error and "It lacks 'w'" in error
    first["w"] = "w"
    for chosen, variable, source, power in (
        (first, "w", "w", ADAM["beta1_power"]),
        (second, "moved", "v", 0.5),
    ):
        name_map.write_text(json.dumps(chosen))
        screen.json(*command, "--name-map", name_map, "--overwrite")
        state = state_files.read(out)
        assert list(state.slots) == list(state.variables) == [variable]
        assert state.shared["beta1_power"] == power
        np.testing.assert_array_equal(state.slots[variable]["v"], other.get(source + "/Adam_1", 3))
        state.variables[variable][...] = 9
        state_files.write(out, state._replace(global_step=8))
        command_back = ["import", out, "--like", path, "--out", new, "--overwrite"]
        screen.json(*command_back, "--name-map", name_map)
        expected = {**ADAM, **other, **powers, "global_step": 8}
        expected[source] = state.variables[variable]
        for name, value in tensors(new).items():
            np.testing.assert_array_equal(value, expected.pop(name), name)
        assert not expected


def test_optimizers_in_scopes(rules, screen, tmp_path):
    """Slots and powers belong to one optimizer, and a step in another scope to another network."""
    powers = {name: ADAM[name] for name in ("beta1_power", "beta2_power")}
    of_v = {"v": ADAM["w"], "fine/v/Adam": ADAM["w"], "fine/v/Adam_1": ADAM["w"]}
    again = {"fine/w/Adam": ADAM["w"], "fine/w/Adam_1": ADAM["w"]}
    in_fine = {f"fine/{name}": value for name, value in powers.items()}
    not_here = dict.fromkeys(powers)
    no_powers, to_fine = dict.fromkeys(in_fine), {f"fine/{name}": name for name in powers}
    out, name_map = tmp_path / "s.npz", tmp_path / "map.json"
    command = "export", "--rule", rules["Adam"], "--out", out, "--name-map", name_map, "--overwrite"
    for changes, chosen, words in (
        ({**of_v, **in_fine}, {}, "'beta1_power' and 'fine/beta1_power'"),
        ({**of_v, **in_fine}, no_powers, "It lacks 'v', 'w'"),
        ({**of_v, **in_fine}, {**no_powers, "w": "w", "v": "v"}, "in the scopes '', 'fine/'"),
        ({**of_v, **in_fine, **not_here}, {}, "in the scopes '', 'fine/'"),
        ({**again, **in_fine}, {**no_powers, "w": "w"}, "several optimizers trained it"),
        (
            {"w/Adam_2": ADAM["w"], "beta1_power_1": np.float32(0.5)},
            {"beta1_power": None, "beta1_power_1": "beta1_power", "w": "w"},
            "'w/Adam_2', slots of another optimizer",
        ),
        ({"global_step": None, "a/global_step": STEP, "b/global_step": STEP}, {}, "or all to null"),
    ):
        path = checkpoint(tmp_path, **changes)
        name_map.write_text(json.dumps(chosen))
        assert words in screen.refused(command[0], path, *command[1:]), (changes, chosen)
    one_scope = {**of_v, **in_fine, **not_here, "w/Adam": None, "w/Adam_1": None}
    for changes, chosen, step, names in (
        ({**of_v, **in_fine}, {**to_fine, **not_here, "w": None, "v": "v"}, 7, ["v"]),
        ({**one_scope, "global_step": None, "fine/global_step": STEP}, {"w": None}, 5, ["v"]),
        ({"global_step": None, "other/global_step": STEP}, {}, 0, ["other/global_step", "w"]),
        ({}, {"global_step": None}, 0, ["w"]),
        ({"global_step": None, "a/global_step": STEP}, {"a/global_step": "global_step"}, 5, ["w"]),
    ):
        path = checkpoint(tmp_path, **changes)
        name_map.write_text(json.dumps(chosen))
        screen.json(command[0], path, *command[1:])
        state = state_files.read(out)
        assert (state.global_step, sorted(state.variables)) == (step, names), (changes, chosen)


def test_names_that_look_like_slots(rules, screen, tmp_path):
    more = {"scale": ADAM["w"], "scale/moving_mean": np.float32([2]), "w/Momentum": ADAM["w"]}
    path, out = checkpoint(tmp_path, **more), tmp_path / "s.npz"
    name_map = tmp_path / "map.json"
    command = ["export", path, "--rule", rules["Adam"], "--out", out, "--overwrite"]
    assert "'scale/moving_mean', 'w/Momentum', slots of another" in screen.refused(*command)
    mean = {"scale/moving_mean": "scale/moving_mean"}
    for chosen, variables, left_out in (
        ({"w/Momentum": None, **mean}, ["scale", "scale/moving_mean", "w"], ["w/Momentum"]),
        ({"w": "w", **mean}, ["scale/moving_mean", "w"], ["scale", "w/Momentum"]),
        ({"scale": None, "w/Momentum": None}, ["w"], ["scale", "scale/moving_mean", "w/Momentum"]),
    ):
        name_map.write_text(json.dumps(chosen))
        assert screen.json(*command, "--name-map", name_map)["left_out"] == left_out
        assert sorted(state_files.read(out).variables) == variables
    name_map.write_text('{"scale": null}')
    assert "it has 'w/Momentum', slots" in screen.refused(*command, "--name-map", name_map)


def test_scopes(rules, screen, tmp_path):
    """Tests that slots, powers and the step are found in scopes, and written back there."""
    scoped = {f"train/{name}": value for name, value in ADAM.items() if name != "w"}
    path = write_tensors(tmp_path / "ckpt", {"w": ADAM["w"], **scoped})
    out, new = tmp_path / "s.npz", tmp_path / "new"
    facts = screen.json("export", path, "--rule", rules["Adam"], "--out", out)
    assert (facts["step"], facts["variables"], facts["left_out"]) == (7, ["w"], [])
    state = state_files.read(out)
    assert (state.slots["w"]["v"] == 3).all() and state.shared["beta1_power"] == np.float32(0.9)
    state_files.write(out, state._replace(global_step=8))
    screen.json("import", out, "--like", path, "--out", new)
    assert set(tensors(new)) == {"w", *scoped} and tensors(new)["train/global_step"] == 8
    # The variable `w` is not trained if the slots in the scope are those of `deep/w`.
    deep = {name.replace("/w/", "/deep/w/"): value for name, value in scoped.items()}
    path = write_tensors(tmp_path / "deep", {"w": ADAM["w"], "deep/w": ADAM["w"], **deep})
    facts = screen.json("export", path, "--rule", rules["Adam"], "--out", out, "--overwrite")
    assert (facts["variables"], facts["not_trained"]) == (["deep/w"], ["w"])
    assert list(state_files.read(out).slots) == ["deep/w"]


def test_a_step_of_another_name(rules, screen, tmp_path):
    path, out = checkpoint(tmp_path, global_step=None, step=np.int32(5)), tmp_path / "s.npz"
    name_map = tmp_path / "map.json"
    name_map.write_text('{"step": "global_step"}')
    command = ["export", path, "--rule", rules["Adam"], "--out", out, "--name-map", name_map]
    assert screen.json(*command)["step"] == 5
    state = state_files.read(out)._replace(global_step=2**31)
    state_files.write(out, state)
    words = "--like", path, "--out", tmp_path / "new", "--name-map", name_map
    assert "the global step is int32" in screen.refused("import", out, *words)
    state_files.write(out, state._replace(global_step=7))
    screen.json("import", out, *words)
    assert tensors(tmp_path / "new")["step"] == 7


@pytest.fixture
def exported(rules, screen, tmp_path):
    """Returns the paths of a checkpoint and its state file."""
    path, out = checkpoint(tmp_path), tmp_path / "state.npz"
    assert screen.run("export", path, "--rule", rules["Adam"], "--out", out)[0] == 0
    return path, out


def refused_import(screen, folder, state, like):
    error = screen.refused("import", state, "--like", like, "--out", folder / "new")
    assert not list(folder.glob("new*"))
    return error


def test_import_of_other_variables(exported, rules, screen, tmp_path):
    path, out = exported
    state = state_files.read(out)

    def error(changed):
        state_files.write(out, changed)
        return refused_import(screen, tmp_path, out, path)

    more = dict(state.variables, x=np.float32([1]))
    assert "the checkpoint has no variable 'x'" in error(state._replace(variables=more))
    assert "'slot/w/v' is missing" in error(state._replace(slots={"w": {"m": ADAM["w"]}}))
    assert "'w' was not trained" in error(state._replace(slots={})).replace("the variable", "'w'")
    assert "the state has no variable 'w'" in error(state._replace(variables={}, slots={}))
    of_rows = {"w": np.ones([5, 2], "f4")}
    slots = {"w": {"m": of_rows["w"], "v": of_rows["w"]}}
    shapes = error(state._replace(variables=of_rows, slots=slots))
    assert "'w' has the shape [4, 2], but the shape [5, 2] in the state" in shapes
    other = recorded.load(rules["Momentum"])
    slots = {"w": {"momentum": ADAM["w"]}}
    rule = error(state._replace(record=other, shared={}, slots=slots))
    assert "does not belong to MomentumOptimizer" in rule


def damaged_copies(path):
    """Yields damaged contents of a file."""
    content = Path(path).read_bytes()
    for share in np.linspace(0, 0.99, 24):
        yield content[: int(share * len(content))]
        flipped = bytearray(content)
        flipped[int(share * len(content))] ^= 0xFF
        yield bytes(flipped)


def test_damaged_state_files(exported, tmp_path):
    _, out = exported
    expected = state_files.read(out)
    damaged, refused = tmp_path / "damaged.npz", 0
    for content in damaged_copies(out):
        damaged.write_bytes(content)
        try:
            found = state_files.read(damaged)
        except recorded.RecordError:
            refused += 1
            continue
        # Some bytes of a zip archive, such as times and attributes, have no meaning.
        np.testing.assert_array_equal(found.variables["w"], expected.variables["w"])
    assert refused > 40


def test_other_files_are_no_states(tmp_path):
    path = tmp_path / "state.npz"
    for save in (
        lambda: np.savez(path, record=np.array([{}], object)),
        lambda: np.savez(path, w=np.ones(3)),
        lambda: np.savez_compressed(path, record=np.zeros(10**7, np.uint8)),
        lambda: np.savez(path, record=np.zeros(3, np.uint8)),
        lambda: path.write_bytes(b"PK\x03\x04"),
        lambda: path.write_bytes(b""),
    ):
        save()
        with pytest.raises(recorded.RecordError, match="state.npz"):
            state_files.read(path)
    for name in "missing.npz", "state.txt":
        with pytest.raises(recorded.RecordError, match=name):
            state_files.read(tmp_path / name)


def test_an_absurd_shape_allocates_nothing(exported, tmp_path):
    _, out = exported
    old, new = b"'shape': (4, 2), }       ", b"'shape': (400000000000,), "
    content = out.read_bytes()
    assert old in content
    out.write_bytes(content.replace(old, new[: len(old)].replace(b"0,), ", b"0,)} ")))
    with pytest.raises(recorded.RecordError, match=r"state\.npz"):
        state_files.read(out)


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_damaged_checkpoints(ending, exported, rules, screen, tmp_path):
    path, out = exported
    file, before, refused = Path(f"{path}.{ending}"), out.read_bytes(), 0
    command = ["export", path, "--rule", rules["Adam"], "--out", out, "--overwrite"]
    for content in damaged_copies(file):
        file.write_bytes(content)
        code, _, errors = screen.run(*command)
        refused += code == 2 and "ckpt" in errors and errors.count("\n") == 1
        # Some bytes of the index have no meaning. A refused export leaves the old file there.
        assert out.read_bytes() == before
    assert refused > 40
    file.unlink()
    assert "ckpt" in screen.refused(*command)


@pytest.mark.parametrize(
    "words, problem",
    [
        (["--set", "learning_rate=1"], "--set has no meaning with --to npz"),
        (["--to", "torch-own", "--set", "rate"], "--set takes NAME=NUMBER, got 'rate'"),
        (["--to", "torch-own", "--set", "rate=x"], "--set takes NAME=NUMBER, got 'rate=x'"),
        (["--to", "torch-own"], "--to torch-own needs torch: pip install torch"),
        (["--to", "optax-own"], "--to optax-own needs optax: pip install optax"),
    ],
)
def test_export_to_other_libraries(words, problem, exported, rules, screen, tmp_path):
    path, out = exported[0], tmp_path / "own"
    assert problem in screen.refused("export", path, "--rule", rules["Adam"], "--out", out, *words)
    assert not list(tmp_path.glob("own*"))


def test_safetensors_may_be_missing(exported, monkeypatch, tmp_path):
    _, out = exported
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(recorded.RecordError, match="pip install safetensors"):
        state_files.write(tmp_path / "state.safetensors", state_files.read(out))
    assert not list(tmp_path.glob("*safetensors*"))
