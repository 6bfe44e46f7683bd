"""Tests the benchmarks: workloads, timing, goals and the report.

A contestant is one optimizer on one workload. A goal is an upper bound of the ratio of two
contestants' times. In the names of contestants, "bridged" optimizers are made by `to_keras` from v1
optimizers, and "stock" optimizers are those of TensorFlow. The workloads B1 to B4 measure the Keras
bridge; W1 to W4 measure optimizers without Keras.
"""

import contextlib
import functools
import gc
import json
import os
import time

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import (
    against,
    embeddings,
    keras_bridge,
    optimizers,
    report,
    run,
    timing,
    workloads,
)
from legacy_opt import AdagradDecayOptimizer, versions
from tests.support.cases import public_optimizers
from tests.support.processes import programs

TINY = {w.name: w.scaled_down(5000) for w in workloads.WORKLOADS}
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(run.__file__)))


@pytest.fixture(scope="module", autouse=True)
def frozen_objects():
    """Excludes the existing objects from the garbage collection at the end of each contestant."""
    gc.freeze()


def result(ratio, goal):
    spread = timing.Spread(ratio, ratio - 0.1, ratio + 0.1)
    milliseconds = timing.Spread(2.0, 1.0, 3.0)
    return report.Result("W1", "ref", "Ours", "stock", milliseconds, spread, goal)


@pytest.mark.parametrize(
    "ratio, goal, hit",
    [(1.04, 1.05, True), (1.05, 1.05, True), (1.06, 1.05, False), (9, None, None)],
)
def test_a_hit_is_a_median_within_the_goal(ratio, goal, hit):
    assert result(ratio, goal).hit is hit
    line = report.results_table([result(ratio, goal)]).splitlines()[1]
    assert ("hit" in line, "MISS" in line) == (hit is True, hit is False)


def test_spread_is_median_and_quartiles():
    assert timing.Spread.of([5, 1, 2, 3, 4]) == (3, 2, 4)


def test_contestants_take_turns_and_each_starts_a_round():
    calls = []

    def step(name):
        calls.append(name)
        time.sleep(0.03)  # longer than the duration of a block, so each block is one step

    times = timing.alternate({name: functools.partial(step, name) for name in "ab"}, 4)
    assert "".join(calls[-8:]) == "abbaabba"
    assert calls[:-8] == sorted(calls[:-8])
    assert {name: len(block) for name, block in times.items()} == {"a": 4, "b": 4}
    assert all((block > 0).all() for block in times.values())


def test_steps_that_time_themselves_are_asked_for_their_times():
    class Fixed:
        counts = []

        def times(self, count):
            self.counts.append(count)
            return [0.001] * (count - 1) + [7]

    times = timing.alternate({"fixed": Fixed()}, 2)
    assert Fixed.counts == [5, 20, 20]
    np.testing.assert_array_equal(times["fixed"], [0.001, 0.001])


def test_slow_steps_get_fewer_rounds(monkeypatch):
    monkeypatch.setattr(timing, "_MOST_SECONDS", 0.15)
    times = timing.alternate({"slow": functools.partial(time.sleep, 0.02)}, 25)
    assert len(times["slow"]) in (5, 6, 7)


def test_zipf_ids_are_rows_with_duplicates():
    workload = TINY["W4"]._replace(ids=1000)
    ids = workloads.zipf_ids(workload)
    assert ids.shape == (workloads.BATCHES, 1000)
    assert ids.min() >= 0 and ids.max() < workload.shape[0]
    assert len(np.unique(ids[0])) < 1000
    assert not np.array_equal(ids[0], ids[1])


def test_workloads_and_goals():
    goals = {entry.name: entry for entry in optimizers.ENTRIES}
    for name in ("AdagradDecay", "AdagradDecayV2"):
        assert goals[name].goals == {"W1": 1.05, "W2": 1.40, "W3": 1.20, "W4": 1.30}
        assert goals[name].growth == 1.15
    assert goals["AdagradDecay, all due"].goals["W1"] == 2.8
    assert goals["AdagradDecay, one by one"].goals["W2"] == 2.4
    assert goals["AdamW"].goal("W1", "ref") == 1.30
    assert goals["AdamW"].goal("W1", "resource") == 1.60
    assert goals["DiffGrad"].goal("W1", "ref") == goals["DiffGrad"].goal("W1", "resource") == 4
    assert {w.name: w.shape for w in workloads.WORKLOADS} == {
        "W1": (2500, 4000),
        "W2": (64, 64),
        "W3": (10**6, 16),
        "W4": (10**7, 16),
    }


# By definition, a sparse update of these optimizers changes the whole table. So the time of the
# update grows with the table, and there is no goal for the growth.
WHOLE_TABLE = {"AdamGS", "AdamW", "Nadam", "AddSign", "PowerSign"}
WHOLE_TABLE |= {"AdamWeightDecay", "LAMB", "Adafactor", "RectifiedAdam", "AdaBelief", "Yogi"}


def test_every_optimizer_is_measured_and_the_row_wise_ones_may_not_grow(monkeypatch):
    monkeypatch.setattr(run, "lack_of_kernels", lambda: "not in this test")
    entries = {entry.name: entry for entry in optimizers.ENTRIES}
    for optimizer in public_optimizers():
        name = optimizer.__name__.replace("Optimizer", "")
        assert name in entries, "add an entry to benchmarks/optimizers.py"
        entry = entries[name]
        assert {"W1", "W2", "W3"} <= set(entry.goals) and entry.stock in optimizers.STOCK
        made = entry.make(tf.Variable(0, dtype=tf.int64))
        assert type(made) is optimizer
        if entry.name in WHOLE_TABLE:
            assert entry.growth is None and "whole table" in entry.family
        else:
            assert entry.growth, f"{name}: add a growth, or add it to WHOLE_TABLE"
            assert entry.growth <= 1.2 and "whole table" not in entry.family
    measured = {tuple(entry.name for entry in group) for group in run.groups(TINY["W4"])}
    # The tables of four or more optimizers do not fit into memory.
    assert all(len(group) <= 3 for group in measured)
    assert {name for group in measured for name in group} == {
        entry.name for entry in optimizers.ENTRIES if entry.growth
    }


@pytest.mark.parametrize("name", [entry.name for entry in optimizers.ENTRIES])
def test_a_step_trains(name):
    workload = TINY["W3" if "W3" in optimizers.BY_NAME[name].goals else "W2"]
    contestant = workloads.Contestant(workload, optimizers.MAKERS[name], use_resource=True)
    contestant.step()
    value = contestant.value(contestant.variables[0])
    contestant.close()
    assert np.isfinite(value).all() and value.any()


@pytest.mark.parametrize("name", ["W2", "W3"])
def test_a_step_in_a_function_trains_like_in_a_session(name):
    def trained(contestant):
        for _ in range(2):
            contestant.step()
        value = contestant.value(contestant.variables[0])
        contestant.close()
        return value != 0

    make = optimizers.STOCK["stock Adagrad"]
    in_function = trained(keras_bridge.Step(TINY[name], make))
    in_session = trained(workloads.Contestant(TINY[name], make, use_resource=True))
    assert in_function.any()
    # Building the function runs one more step, which trains the rows of one more batch.
    assert in_function.sum() >= in_session.sum()


def test_trainings_with_an_embedding():
    names = list(embeddings.makers(versions.keras_facts()["generation"]))[:1]
    names += ["v1 Adam, to_keras", "LazyAdam, to_keras"]
    results = {name: embeddings.train(name, rows=50, steps=5) for name in names}
    assert all(each["seconds"] > 0 for each in results.values())
    states = [each["state"] for each in results.values()]
    assert min(states) > 2 * 50 * 4 * embeddings.COLUMNS
    lines = list(embeddings.lines_of(50, results))
    assert lines[2].startswith(f"| {names[0]} | ")
    assert lines[3].endswith(" | 0 |")
    assert lines[4].endswith(" | another algorithm |")
    del results[names[0]]
    lines = list(embeddings.lines_of(50, results))
    assert len(lines) == 4 and all(" | nan | " in line for line in lines[2:])
    assert len(list(embeddings.lines_of(50, {}))) == 2


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("name", sorted(TINY))
def test_steps_decay_every_time_or_never(name, use_resource):
    def decays(entry_name):
        made = []

        def make(step):
            made.append(optimizers.MAKERS[entry_name](step))
            return made[0]

        contestant = workloads.Contestant(TINY[name], make, use_resource)
        for _ in range(3):
            contestant.step()
        powers = [
            contestant.value(made[0].get_slot(variable, "accumulator_decay_power"))
            for variable in contestant.variables
        ]
        contestant.close()
        return max(power.max() for power in powers)

    assert decays("AdagradDecay") == 0
    assert decays("AdagradDecay, all due") > 0


def test_results_are_in_tables_by_family():
    ours = [result(1, 1.05)._replace(family=family) for family in ("A", "B", "A")]
    tables = report.results_tables(ours).split("\n\n")
    assert [table.splitlines()[0] for table in tables] == ["A", "B"]
    assert [table.count("Ours") for table in tables] == [2, 1]
    missed = report.goals_line([result(1, 1.05), result(2, 1.05), result(9, None)])
    assert missed.splitlines() == ["1 of 2 goals hit. Missed:", "  W1 ref Ours: 2.00 > 1.05"]


def test_bytes_of_state_follow_the_layout():
    table = workloads.Workload("T", "", (10, 16), ids=4)
    sizes = {
        name: workloads.Contestant(table, optimizers.MAKERS[name], True).state_bytes
        for name in ("stock Adagrad", "AdagradDecay", "AdagradDecayV2")
    }
    assert sizes == {
        "stock Adagrad": {"accumulator": 640},
        "AdagradDecay": {"accumulator": 640, "accumulator_decay_power": 1280},
        "AdagradDecayV2": {"accumulator": 640, "accumulator_decay_power": 80},
    }


@pytest.mark.full
def test_report_is_whole_whatever_it_finds(tmp_path, monkeypatch, capsys):
    never = [
        entry._replace(goals={name: goal and 0.0 for name, goal in entry.goals.items()})
        for entry in optimizers.ENTRIES
        if entry.name in ("AdagradDecay", "AdagradDecayV2", "MomentumW", "LazyAdam", "AdamW")
    ]
    monkeypatch.setattr(optimizers, "ENTRIES", never)
    path = tmp_path / "bench.json"
    # B2 is left out, because B1 and B2 are equal if they are scaled down. B4 also runs B3.
    names = "W1,W2,W3,W4,B1,B4"
    arguments = ["--only", names, "--scale-down", "5000", "--repeats", "2", "--json", str(path)]
    assert run.main(arguments) == 0
    saved = json.loads(path.read_text())
    assert {"tensorflow", "cpu", "cores", "date", "rounds"} <= set(saved["environment"])
    seen = {(r["workload"], r["variables"], r["compared_with"]) for r in saved["results"]}
    for variables in ("ref", "resource"):
        for name in ("W1", "W2", "W3", "W4"):
            assert (name, variables, "stock Adagrad") in seen
            assert (name, variables, "stock Adam") in seen
        assert ("W4", variables, "itself on W3") in seen
    grown = {r["optimizer"] for r in saved["results"] if r["compared_with"] == "itself on W3"}
    assert {"stock Adam", "LazyAdam", "stock Momentum", "MomentumW"} < grown
    bridged = {
        (r["workload"], r["way"], r["compared_with"])
        for r in saved["results"]
        if r["optimizer"].startswith("bridged")
    }
    for generation in GENERATIONS:
        step, fit = (str(keras_bridge.Way(kind, generation)) for kind in ("step", "fit"))
        assert {("B1", fit, "Keras SGD"), ("B1", fit, "Keras Adam")} < bridged
        for other in ("Keras SGD", "Keras Adam", "v1 Momentum", "v1 Adam"):
            assert ("B1", step, other) in bridged
        assert ("B4", step, "itself on B3") in bridged
    for entry in saved["results"]:
        assert entry["ratio"]["lower"] <= entry["ratio"]["median"] <= entry["ratio"]["upper"]
        assert entry["milliseconds"]["median"] > 0
        if entry["goal"] == 0:
            assert entry["hit"] is False
    assert len(saved["state"]) == len({json.dumps(state) for state in saved["state"]})
    layouts = {(s["workload"], s["optimizer"]): s["total"] for s in saved["state"]}
    assert layouts["W4", "AdagradDecayOptimizer"] > layouts["W4", "AdagradDecayOptimizerV2"]
    printed = capsys.readouterr().out
    assert "MISS" in printed and str(path) in printed
    for family in optimizers.FAMILIES:
        assert printed.count(family + "\n") == 1
    assert os.listdir(str(tmp_path)) == ["bench.json"]


@pytest.mark.keras2
def test_script_runs_from_any_directory(tmp_path):
    options = ["--quick", "--only", "w1,b3", "--scale-down", "5000", "--json", "out.json"]
    script = os.path.join(ROOT, "benchmarks", "run.py")
    done = programs.run(script, *options, seconds=300, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    saved = json.loads((tmp_path / "out.json").read_text())
    assert {entry["workload"] for entry in saved["results"]} == {"W1", "B3"}
    v1_or_v2 = "Session" if tf.__version__.startswith("1.") else "tf.function"
    ways = {f"{v1_or_v2}, Keras {generation}" for generation in GENERATIONS}
    assert {r["way"] for r in saved["results"] if r["workload"] == "B3"} == ways
    assert {entry["variables"] for entry in saved["results"]} == {"resource"}
    assert saved["environment"]["rounds"] == 7


@pytest.mark.parametrize("arguments", [["--only", "W9"], ["--repeats", "0"], ["--repeats", "x"]])
def test_wrong_arguments_name_what_is_wrong(arguments, capsys):
    with pytest.raises(SystemExit):
        run.parse_arguments(arguments)
    assert arguments[1] in capsys.readouterr().err


def test_one_by_one_is_the_form_without_preparation():
    assert issubclass(optimizers.AdagradDecayOneByOne, AdagradDecayOptimizer)
    assert optimizers.AdagradDecayOneByOne(0.1, None).prepare_step([]) == {}


# The installed generations of Keras.
GENERATIONS = [2, 3] if versions.keras_facts()["generation"] == 3 else [2]
SMALL = {w.name: w.scaled_down(8)._replace(ids=w.ids and 64) for w in keras_bridge.WORKLOADS}
SMALL["B4"] = SMALL["B4"]._replace(shape=SMALL["B3"].shape)


def trained(kind, generation, name, optimizer, steps=3):
    """Trains for some steps; returns the variables and the optimizer's step counter."""
    contestant = keras_bridge.contestant(SMALL[name], keras_bridge.Way(kind, generation), optimizer)
    if kind == "fit":
        assert len(contestant.step.times(steps)) == steps
    else:
        for _ in range(steps):
            contestant.step()
    values = [contestant.value(variable) for variable in contestant.variables]
    count = int(contestant.value(contestant.iterations))
    contestant.close()
    return values, count


# The modes of a benchmark: a graph with Keras 2 (as in TensorFlow 1.15), and eager execution with
# each installed generation of Keras (as in TensorFlow 2).
MODES = [("graph", 2)] + [("eager", generation) for generation in GENERATIONS]


@pytest.fixture(params=MODES, ids="{0[0]}-keras{0[1]}".format)
def generation(request):
    """Yields the generation of Keras of a mode; in the mode "graph", the test runs in a graph."""
    mode, generation = request.param
    with tf.Graph().as_default() if mode == "graph" else contextlib.ExitStack():
        yield generation


def test_goals_of_the_bridge_are_measured():
    assert {w.name: (w.shape, w.variables) for w in keras_bridge.WORKLOADS} == {
        "B1": ((64, 64), 10),
        "B2": ((64, 64), 200),
        "B3": ((10**6, 16), 1),
        "B4": ((10**7, 16), 1),
    }
    for workload in keras_bridge.WORKLOADS[:2]:
        for generation, own in zip(GENERATIONS, (1.10, 1.00)):
            expected = {
                ("step", "bridged Momentum", "Keras SGD"): own,
                ("step", "bridged Momentum", "v1 Momentum"): 1.10,
                ("step", "bridged Adam", "Keras Adam"): own,
                ("step", "bridged Adam", "v1 Adam"): 1.10,
                ("fit", "bridged Momentum", "Keras SGD"): own,
                ("fit", "bridged Adam", "Keras Adam"): own,
            }
            if generation == 3:
                expected["step", "bridged AdagradDecay", "v1 AdagradDecay"] = 1.10
            assert goals(workload, generation) == expected
    expected = {
        ("step", "bridged Adagrad", "Keras Adagrad"): 1.00,
        ("step", "bridged Adagrad", "v1 Adagrad"): 1.10,
        ("step", "bridged AdagradDecay", "v1 AdagradDecay"): 1.10,
    }
    for generation in GENERATIONS:
        assert goals(keras_bridge.WORKLOADS[2], generation) == (expected if generation == 3 else {})
        grown = keras_bridge.comparisons(
            keras_bridge.WORKLOADS[3], keras_bridge.Way("step", generation)
        )
        for name in ("bridged Adagrad", "bridged AdagradDecay"):
            assert (("B4", name), ("B3", name), 1.15) in grown


def goals(workload, generation):
    """Returns a dict from (kind of way, name of one contestant, name of the other) to the goal."""
    return {
        (way.kind, one[1], other[1]): goal
        for way in keras_bridge.ways(workload)
        if way.generation == generation
        for one, other, goal in keras_bridge.comparisons(workload, way)
        if goal is not None
    }


@pytest.mark.parametrize(
    "arguments, names",
    [([], "W1 W2 W3 W4 B1 B2 B3 B4"), (["--quick"], "W1 W2 W3 B1 B2 B3"), (["--only", "b4"], "B4")],
)
def test_everything_is_measured_by_default(arguments, names, tmp_path, monkeypatch):
    measured = []

    def measure_all(names, *rest):
        measured.extend(names)
        return [], []

    monkeypatch.setattr(run, "measure_all", measure_all)
    assert run.main(arguments + ["--json", str(tmp_path / "bench.json")]) == 0
    assert measured == names.split()


def test_the_option_only_bridge_selects_its_workloads():
    assert run.parse_arguments(["--only", "w2,bridge"]).only == ["W2", "B1", "B2", "B3", "B4"]


@pytest.mark.in_turn(optimizer=["Momentum", "Adam", "Adagrad", "AdagradDecay"], name=["B1", "B3"])
def test_bridge_and_v1_do_the_same_work(generation, name, optimizer):
    bridged, bridged_count = trained("step", generation, name, "bridged " + optimizer)
    plain, plain_count = trained("step", generation, name, "v1 " + optimizer)
    assert bridged_count == plain_count == 3
    assert len(bridged) == SMALL[name].variables
    assert all(value.any() for value in plain)
    for one, other in zip(bridged, plain):
        np.testing.assert_array_equal(one, other)


@pytest.mark.in_turn(kind=["step", "fit"], pair=[("Momentum", "SGD"), ("Adam", "Adam")])
def test_bridge_and_keras_do_the_same_work(generation, kind, pair):
    optimizer, keras = pair
    bridged, bridged_count = trained(kind, generation, "B2", "bridged " + optimizer)
    own, own_count = trained(kind, generation, "B2", "Keras " + keras)
    # Before the timed steps, fit runs one untimed step.
    assert bridged_count == own_count == (3 if kind == "step" else 4)
    assert len(bridged) == len(own) == SMALL["B2"].variables == 25
    assert all(value.any() for value in own)
    for one, other in zip(bridged, own):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_bridge_and_keras_train_the_same_rows(generation):
    (bridged,), _ = trained("step", generation, "B3", "bridged Adagrad")
    (own,), _ = trained("step", generation, "B3", "Keras Adagrad")
    np.testing.assert_array_equal(bridged.any(axis=1), own.any(axis=1))


def test_keras_own_optimizers_are_of_the_same_keras_as_the_bridge(generation):
    for name in ("SGD", "Adam", "Adagrad"):
        own = keras_bridge.makers(generation)["Keras " + name](None)
        if generation == 2:
            assert isinstance(own, versions.optimizer_v2())
        else:
            assert isinstance(own, tf.keras.optimizers.Optimizer)


def test_the_bridge_is_measured_with_every_installed_keras():
    for workload in keras_bridge.WORKLOADS:
        assert sorted({way.generation for way in keras_bridge.ways(workload)}) == GENERATIONS
    for generation in GENERATIONS:
        for name in ("Momentum", "Adam", "Adagrad", "AdagradDecay"):
            made = keras_bridge.makers(generation)["bridged " + name](None)
            assert hasattr(made, "update_step") == (generation == 3)


@pytest.mark.full
def test_another_checkout_takes_turns(tmp_path, capsys, monkeypatch):
    """Compares the tested checkout with itself, instead of with another checkout."""
    monkeypatch.setattr(keras_bridge, "DENSE", [keras_bridge.DENSE[1]])
    monkeypatch.setattr(keras_bridge, "ways", lambda workload: [keras_bridge.Way("step", 2)])
    monkeypatch.setattr(against, "OPTIMIZERS", {"W3": ["LazyAdam"]})
    monkeypatch.setattr(against, "build_kernels", lambda checkout: False)
    monkeypatch.setattr(run, "_MORE_PROCESSES", 0)
    path = tmp_path / "speed.json"
    words = ["--only", "W3,B1", "--scale-down", "5000", "--repeats", "5", "--against", ROOT]
    assert run.main([*words, "--json", str(path)]) == 0
    found, printed = json.loads(path.read_text())["results"], capsys.readouterr().out
    names = [(each["optimizer"], each["compared_with"]) for each in found]
    expected = ["LazyAdam", "bridged Momentum"]
    assert names == [(name, name + ", other checkout") for name in expected]
    assert all(each["ratio"]["median"] > 0 for each in found)
    assert all(f"{name}, other checkout" in printed for name in expected)


def test_native_kernels_of_another_checkout_are_compared():
    planned = against.comparisons_of_kernels("W4", has_kernels=True)
    assert [one[1] for one, _, _ in planned] == [
        *("AdagradDecay", "AdagradDecay, native", "LazyAdam", "LazyAdam, native")
    ]
    for names in against.OPTIMIZERS.values():
        assert {each for name in names for each in (name, name + ", native")} <= set(
            optimizers.MAKERS
        )


@pytest.mark.parametrize(
    "seconds, pairs, median",
    [([1.0], 1, 1.0), ([1.2, 1.0, 1.0, 1.0], 4, 1.0), ([1.2, 1.1, 1.3, 1.1], 4, 1.15)],
    ids=["equal", "unlucky", "slower"],
)
def test_a_missed_goal_is_measured_in_more_processes(seconds, pairs, median):
    """Each number of `seconds` is the time of this checkout's steps in one pair of processes."""
    left, closed = iter(seconds), []

    class Contestant:
        def __init__(self, name, optimizer):
            del name
            self.step, self.seconds = self, 1.0 if "other" in optimizer else next(left)

        def times(self, count):
            return [self.seconds] * count

        def close(self):
            closed.append(self)

    planned = [(("W3", "Adam"), ("W3", "Adam, other checkout"), 1.05)]
    (result,) = run._compare_in_processes(planned, Contestant, 5)
    assert (len(closed), round(result.ratio.median, 9)) == (2 * pairs, median)


def test_a_folder_that_is_no_checkout(tmp_path, capsys):
    with pytest.raises(SystemExit):
        run.parse_arguments(["--against", str(tmp_path)])
    assert "it has no folder legacy_opt" in capsys.readouterr().err
