"""Tests `legacy-opt prove`, and targets in TensorFlow."""

import importlib

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import proofs, recorded
from tests.recorded.references import trained

DRAW = "prove", "draw"
REPLAY = "prove", "replay"
HALVED = """
import tensorflow as tf

class Halved(tf.compat.v1.train.MomentumOptimizer):
    def __init__(self, learning_rate, momentum):
        super().__init__(learning_rate, momentum * 0.5)
"""


@pytest.fixture
def drawn(screen, tmp_path):
    """Returns a function that draws a proof, and returns its path and the JSON of `draw`."""

    def draw(rule, *options):
        path = tmp_path / f"{rule}{len(options)}.proof"
        return path, screen.json(*DRAW, rule, "--out", path, *options)

    return draw


def test_draw(screen, drawn, tmp_path):
    path, facts = drawn("MomentumOptimizer", "--rows", "--seed", 3, "--set", "momentum=0.5")
    assert facts["variables"] == {"table": [20, 4], "other": [20, 4]} and facts["made"]["seed"] == 3
    assert facts["first_step"] == {"learning_rate": 2**-6, "momentum": 0.5}
    assert facts["last_step"] == {"learning_rate": 2**-7, "momentum": 0.5}
    proof = proofs.read(path)
    assert proof.record.optimizer == "MomentumOptimizer" and len(proof.gradients) == 10
    _, output, _ = screen.run(*DRAW, "AdamOptimizer", "--out", tmp_path / "x", "--steps", 3)
    assert "x: AdamOptimizer, 3 steps, seed 0\ndense gradients: w=[12, 8], b=[8], c=[8]\n" in output
    assert "power: it notices 2" in output and " changes of the rule" in output


@pytest.mark.every_lane  # trains with what each TensorFlow has
def test_verdicts_and_exit_codes(screen, drawn):
    path, _ = drawn("MomentumOptimizer")
    code, output, _ = screen.run(*REPLAY, path, "--with", "legacy-opt:numpy")
    assert code == 0 and output.startswith("legacy-opt:numpy, MomentumOptimizer: EQUAL\n")
    facts = screen.json(*REPLAY, path, "--with", "tf:tensorflow:keras.optimizers.SGD", code=1)
    assert facts["verdict"] == "DIFFERS"
    assert (facts["step"], facts["variable"]) == (7, "w")  # where the rate halves
    assert facts["error_bars"] > 1e5 and facts["versions"]["tensorflow"] == tf.__version__
    assert facts["notes"][0] == "arguments: learning_rate=learning_rate, momentum=momentum"


@pytest.mark.parametrize("rows", [False, True], ids=["dense", "rows"])
@pytest.mark.parametrize("rule", ["Adam", "AdagradDecay", "LAMB"])
def test_v1_optimizers(screen, tmp_path, rule, rows):
    path = tmp_path / "proof"
    proofs.write(path, proofs.draw(recorded.load(f"{rule}Optimizer"), rows=rows))
    name = "tensorflow:compat.v1.train.Adam" if rule == "Adam" else f"legacy_opt:{rule}"
    options = ["--map", "accumulator_decay_step=100000"] if "Decay" in rule else []
    for kind in "tf", "to_keras":
        facts = screen.json(*REPLAY, path, "--with", f"{kind}:{name}Optimizer", *options)
        assert facts["verdict"] in ("EQUAL", "ROUNDING")
        if facts["verdict"] == "ROUNDING":
            assert "v1 optimizers compute scalars in float32" in facts["notes"][-1]


@pytest.fixture
def run_of_three(tmp_path):
    """Returns the path of a recorded training with three optimizers."""
    names = {"w": "_a b/c:part_0", "b": "a/b/part_1"}
    adam, decay = (recorded.load(f"{x}Optimizer") for x in ("Adam", "AdagradDecay"))
    found = {
        "Adam": trained(adam, missing=True, new_names=names),
        "Adam_1": trained(adam, before=0),
        "AdagradDecay": trained(decay, rows=True, missing=True),
    }
    path = tmp_path / "run.proof"
    proofs.write_run(path, proofs.Run(found))
    return path


V1_ADAM = "tensorflow:compat.v1.train.AdamOptimizer"


@pytest.mark.every_lane  # each TensorFlow has its own ways to create slots
def test_recorded_trainings_from_any_state(screen, run_of_three):
    decay = "to_keras:legacy_opt:AdagradDecayOptimizer", "--map", "accumulator_decay_step=100000"
    for name, target in ("Adam", (f"tf:{V1_ADAM}",)), ("AdagradDecay", decay):
        facts = screen.json(*REPLAY, run_of_three, "--optimizer", name, "--with", *target)
        assert facts["verdict"] in ("EQUAL", "ROUNDING") and facts["optimizer"] == name
        assert not any("slots" in note for note in facts["notes"])


def test_recorded_trainings_with_several_optimizers(screen, run_of_three):
    replay = [*REPLAY, run_of_three]
    reports = screen.json(*replay, "--with", "legacy-opt:numpy")["reports"]
    assert [each["verdict"] for each in reports] == ["EQUAL"] * 3
    facts = screen.json(*replay, "--with", f"to_keras:{V1_ADAM}", "--optimizer", "Adam_1")
    assert facts["verdict"] in ("EQUAL", "ROUNDING")
    keras = "tf:tensorflow:keras.optimizers.Adam"
    for problem, words in (
        ("record from the first step", ["--optimizer", "Adam", "--with", keras]),
        ("pass --optimizer and one of Adam, Adam_1, Adagrad", ["--with", f"tf:{V1_ADAM}"]),
        ("--optimizer must be one of", ["--optimizer", "SGD", "--with", "legacy-opt:numpy"]),
    ):
        assert problem in screen.refused(*replay, *words)


@pytest.mark.every_lane  # each Keras has its own methods
@pytest.mark.skipif(not tf.executing_eagerly(), reason="a graph has no values to record")
def test_a_recorder_of_keras(screen, tmp_path):
    rate = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
    optimizer = tf.keras.optimizers.SGD(rate, momentum=0.5)
    variables = [tf.compat.v2.Variable([1.0, 2.0], name="w"), tf.compat.v2.Variable(0.5, name="b")]
    recorder = proofs.Recorder(optimizer, {"the/w": variables[0]})
    for _ in range(4):
        optimizer.apply_gradients([(0.3 * each, each) for each in variables])
    recorder.write(tmp_path / "run.proof")
    proof = proofs.read_run(tmp_path / "run.proof").proofs["SGD"]
    rates = [each["learning_rate"] for each in proof.hyperparameters]
    assert rates == [np.float32(0.1 * 0.5**step) for step in range(4)]
    assert set(proof.start.variables) == {"the/w", "b"}
    replay = [*REPLAY, tmp_path / "run.proof", "--with", "tf:tensorflow:keras.optimizers.SGD"]
    assert screen.json(*replay)["verdict"] in ("EQUAL", "ROUNDING")
    assert screen.json(*replay, "--map", "momentum=0.25", code=1)["step"] == 2
    with pytest.raises(proofs.ProofError, match="pass run_eagerly=True"):
        step = lambda: optimizer.apply_gradients([(variables[1], variables[1])])  # noqa: E731
        tf.function(step, autograph=False)()


def test_optimizers_of_keras_and_constants(screen, drawn):
    path, _ = drawn("AdamOptimizer")
    name = "tf:tensorflow:keras.optimizers.Adam"
    assert screen.json(*REPLAY, path, "--with", name)["verdict"] == "ROUNDING"
    other = [*REPLAY, path, "--with", name, "--map", "beta_1=0.5"]
    facts = screen.json(*other, code=1)
    assert facts["step"] == 2 and "hyperparameters without an argument: beta1" in facts["notes"]


def test_a_class_that_computes_with_an_argument(screen, tmp_path, monkeypatch):
    (tmp_path / "users_halved.py").write_text(HALVED)
    monkeypatch.syspath_prepend(str(tmp_path))
    with tf.Graph().as_default():
        record = recorded.record(importlib.import_module("users_halved").Halved(0.01, 0.75))
    recorded.save(record, tmp_path / "rule.json")
    proofs.write(tmp_path / "proof", proofs.draw(record))
    words = [*REPLAY, tmp_path / "proof", "--with", "tf:users_halved:Halved"]
    assert "pass --map learning_rate=… --map momentum=…" in screen.refused(*words)
    words += ["--map", "learning_rate=0.01", "--map", "momentum=0.75"]
    assert screen.json(*words)["verdict"] == "EQUAL"


def test_bad_input(screen, drawn, tmp_path):
    path, _ = drawn("MomentumOptimizer")
    draw_adam = [*DRAW, "AdamOptimizer", "--out", "x"]
    adam = ["--with", "tf:legacy_opt:LazyAdamOptimizer"]
    for problem, words in (
        ("exists already", [*DRAW, "AdamOptimizer", "--out", path]),
        ("--steps must be at least 1", [*draw_adam, "--steps", 0]),
        ("--seed in [0, 2**32)", [*draw_adam, "--seed", -1]),
        ("--set takes NAME=NUMBER", [*draw_adam, "--set", "a"]),
        ("neither a file nor a recorded", [*DRAW, "AdamOptimiser", "--out", "x"]),
        (
            "no hyperparameter 'extreme'",
            [*draw_adam, "--set", "extreme=1"],
        ),
        ("beta1 must be a finite", [*draw_adam, "--set", "beta1=1e39"]),
        ("no hyperparameter 'beta'", [*draw_adam, "--set", "beta=1"]),
        ("there is no such file", [*REPLAY, tmp_path / "absent", "--with", "legacy-opt:numpy"]),
        ("there is no target 'adam'", [*REPLAY, path, "--with", "adam"]),
        ("there is no target 'tf:Adam'", [*REPLAY, path, "--with", "tf:Adam"]),
        ("--map takes ARGUMENT=SOURCE", [*REPLAY, path, *adam, "--map", "beta1"]),
        ("'x' is no constant and none of", [*REPLAY, path, *adam, "--map", "beta1=x"]),
        ("Did you mean 'beta1'?", [*REPLAY, path, *adam, "--map", "bta1=1"]),
    ):
        assert problem in screen.refused(*words)
    assert "legacy-opt prove replay:" in screen.refused(*REPLAY, path, "--with", "adam")
