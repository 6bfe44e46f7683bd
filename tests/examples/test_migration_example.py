"""Tests examples_graph_mode/migration_story.py with all stages on the installed TensorFlow.

The program moves a training from a Session to Keras (stage A), back to a Session (B) and to Keras
again (C). The stage "exit" moves the training to Keras' own optimizers.
"""

from tests.examples import flights_modules  # noqa: F401 - must be imported first

# isort: split
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import migration_story
from flights.data import Flights
from legacy_opt import versions
from migration import model, report
from migration.files import periods_of, read_story
from tests.support.paths import EXAMPLES
from tests.support.processes import programs

pytestmark = pytest.mark.full  # the program takes 25 seconds
KERAS_3 = versions.keras_facts()["generation"] == 3
TENSORS = {"Adagrad": 15, "AdagradDecay": 22}  # {optimizer: number of moved tensors}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Returns the folder and the output of one run of the program."""
    folder = tmp_path_factory.mktemp("story") / "out"
    program = EXAMPLES / "migration_story.py"
    done = programs.run(program, "--quick", "--out", folder, seconds=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


@pytest.fixture
def story(finished, tmp_path):
    """Returns a copy of the folder of `finished`. A test may change the copy."""
    shutil.copytree(str(finished[0]), str(tmp_path / "out"))
    return tmp_path / "out"


def report_on(folder):
    """Runs the last part of the program, which checks the files in a folder."""
    migration_story.tell(migration_story.parse_arguments(["--out", str(folder)]))


def change_array(path, key, change):
    """Replaces an array of an .npz file by `change(array)`."""
    with np.load(str(path)) as file:
        arrays = dict(file)
    arrays[key] = change(arrays[key])
    np.savez(str(path), **arrays)


# --- a run without errors


def test_every_conversion_is_bit_equal(finished):
    rows = json.loads((finished[0] / "rows.json").read_text())
    for optimizer, tensors in TENSORS.items():
        moves = [row for row in rows[optimizer] if row["stage"] in "ABC"]
        assert [row["period"] for row in moves] == ["Jul-Aug", "Sep-Oct", "Nov-Dec"]
        for row in moves:
            assert row["tensors"] == tensors
            assert row["arrived"] is None and row["difference"] is None and not row["problems"]
            # All stages use the same TensorFlow, so the moved run equals the run that never moved.
            assert row["variables"] == row["slots"] == row["predictions"] == row["share"] == 0
            assert row["loss"] == row["loss_of_reference"]
    assert "All 6 hand-overs are bit-equal" in finished[1]


def test_exits_to_keras_own_optimizers(finished):
    rows = json.loads((finished[0] / "rows.json").read_text())
    exits = {row["to"]: row for row in rows["Adagrad"] if row["stage"] == "exit"}
    assert len(exits) == (2 if KERAS_3 else 1)
    for name, row in exits.items():
        assert row["tensors"] == 15 and row["arrived"] is None
        if " Keras 3" in name:
            # Ids repeat in a batch. Keras 3 adds the squares of an id's gradients, but v1 squares
            # the sum of the gradients.
            assert row["grade"] == "differs" and "squares the sum" in row["report"]
            assert 1e-4 < row["predictions"] < 0.1
            assert row["loss"] == pytest.approx(row["loss_of_reference"], abs=1e-3)
        else:
            assert row["grade"] in ("exact", "rounding") and row["share"] < 1
    (refused,) = [row for row in rows["AdagradDecay"] if row["stage"] == "exit"]
    assert "no counterpart" in refused["refused"]
    assert "AdagradDecayOptimizer has no counterpart" in finished[1]


def test_the_story_uses_the_command_line(finished):
    assert finished[1].count("$ legacy-opt inspect") == 2
    assert finished[1].count("$ legacy-opt convert") == (2 if KERAS_3 else 1)
    assert "optimizer: AdagradDecay" in finished[1]


def test_the_model_is_of_the_size_of_the_flights(finished):
    _, flights = read_story(str(finished[0]))
    sizes = flights.ids.shape[1], flights.dense.shape[1], flights.vocabulary_size
    assert sizes == (
        model.FIELDS,
        model.FEATURES,
        model.VOCABULARY_SIZE,
    )


def test_plot_and_nothing_half_written(finished):
    assert (finished[0] / "story.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert not [path for path in finished[0].rglob("*") if "writing" in path.name]


def test_the_perturbation_grows_and_is_kept(finished):
    """After June, the "nudged" run changes each float of its state by a unit in the last place."""
    story, _ = read_story(str(finished[0]))
    for period in story.periods[1:]:
        stayed, nudged = (
            story.load_run("Adagrad", who, period) for who in ("never moved", "nudged")
        )
        gaps = report.gaps(nudged, stayed)
        assert 0 < gaps["embeddings"] < 1e-5
        assert gaps["global_step"] == 0


def test_periods_are_months():
    month = np.repeat(np.arange(1, 13), 100).astype(np.int8)
    nothing = np.zeros(month.size, np.float32)
    flights = Flights(nothing, nothing, nothing, month, nothing, vocabulary_size=1)
    periods = periods_of(flights, 64)
    # The tenth batch has the flights 576 to 639. They are of June and July, and the batch counts as
    # part of Jan-Jun.
    assert [tuple(period) for period in periods] == [
        ("Jan-Jun", 0, 10),
        ("Jul-Aug", 10, 13),
        ("Sep-Oct", 13, 16),
        ("Nov-Dec", 16, 19),
    ]
    few = flights.first_of_months(3)
    assert list(few.month) == list(np.repeat(np.arange(1, 13), 3))
    assert [stop - start for _, start, stop in periods_of(few, 3)] == [6, 2, 2, 2]


# --- runs with errors


def test_a_changed_checkpoint_fails_the_roll_back(story, capsys):
    from migration.stages import run_stage

    change_array(
        story / "Adagrad" / "moved" / "Jul-Aug.npz",
        "wide/accumulator",
        lambda array: np.nextafter(array, np.float32(9)),
    )
    run_stage("B", *read_story(str(story)), "Adagrad")
    with pytest.raises(SystemExit) as failure:
        report_on(story)
    (line,) = [line for line in str(failure.value).splitlines() if "wide/accumulator" in line]
    assert f"Adagrad, B, to {tf.__version__} Session" in line
    assert "in 10741 of 10741 numbers" in line
    assert "not equal" in capsys.readouterr().out


def test_a_wrong_checkpoint_fails_the_way_to_keras(story):
    from migration.stages import run_stage

    checkpoint = story / "AdagradDecay" / "checkpoints"
    for path in (checkpoint / "Jan-Jun").glob("model.ckpt*"):
        other = checkpoint / "Sep-Oct" / path.name
        shutil.copyfile(str(path), str(other))
    run_stage("C", *read_story(str(story)), "AdagradDecay")
    with pytest.raises(SystemExit, match="AdagradDecay, C, .* is off by .* times the bound"):
        report_on(story)


def test_an_exit_that_exceeds_its_grade_fails(story):
    (path,) = [
        path
        for path in (story / "Adagrad").glob("*eras*/Nov-Dec.npz")
        if "Keras 3" not in path.parent.name
    ]
    change_array(path, "wide", lambda array: array * np.float32(1.001))
    with pytest.raises(SystemExit, match="Adagrad, exit, .* wide is off by"):
        report_on(story)


def test_only_optimizers_without_exit_may_be_refused(story):
    for optimizer, fine in (("AdagradDecay", True), ("Adagrad", False)):
        for path in (story / optimizer / "rows").glob("4*.json"):
            row = json.loads(path.read_text())
            path.write_text(json.dumps(dict(row, refused="no such thing")))
        rows = report.judge(*read_story(str(story)), optimizer)
        problems = [problem for row in rows for problem in row["problems"]]
        assert bool(problems) != fine
        assert all("refused. no such thing" in problem for problem in problems)


def run_of(value, count=7):
    return {
        "predictions": np.array([0.25, 0.5], np.float32),
        "kernel": np.full([2, 3], value, np.float32),
        "kernel/m": np.ones(2, np.float32),
        "global_step": np.int64(count),
    }


def test_the_bound_against_hand_computed():
    growth = report.gaps(run_of(1.5 + 2**-10), run_of(1.5))
    assert growth["kernel"] == 2**-10
    # The bound is 2 * sqrt(steps) * growth. A growth of 0 is replaced by one unit in the last place
    # of the largest number, here by 2**-23.
    assert report.bound(np.full(3, 1.5, np.float32), 2**-10, 25) == 10 * 2**-10
    assert report.bound(np.ones(3, np.float32), 0, 25) == 10 * 2**-23
    assert report.bound(np.array(7), 3, 25) == 0
    for times, within in ((9, True), (11, False)):
        moved = run_of(1.5 + times * 2**-10)
        assert report.gaps(moved, run_of(1.5))["kernel"] == times * 2**-10
        found = report.shares(moved, run_of(1.5), growth, 25)
        assert found == {"predictions": 0, "kernel": times / 10, "kernel/m": 0, "global_step": 0}
        assert (max(found.values()) <= 1) == within


@pytest.mark.parametrize(
    "moved, where", [(run_of(np.nan), "kernel"), (run_of(1.5, 8), "global_step")]
)
def test_nan_and_a_wrong_global_step_exceed_any_bound(moved, where):
    growth = report.gaps(run_of(2.5), run_of(1.5))
    found = report.shares(moved, run_of(1.5), growth, 25)
    assert found[where] > 1 and max(found, key=found.get) == where


def test_missing_slots_are_an_error():
    missing = run_of(1.5)
    del missing["kernel/m"]
    with pytest.raises(ValueError, match="kernel/m"):
        report.gaps(missing, run_of(1.5))


# --- the program's arguments


@pytest.mark.parametrize(
    "words, text",
    [
        (["--old", "no-such-python"], "--old: there is no program 'no-such-python'"),
        (["--new", "no-such-python"], "--new: there is no program"),
        (["--batch-size", "0"], "is not at least 1"),
        (["--optimizers", "SGD"], "invalid choice: 'SGD'"),
        (["--out", __file__], "this program did not create"),
        (["--out", str(EXAMPLES)], "this program did not create"),
    ],
)
def test_wrong_arguments(words, text, capsys):
    with pytest.raises(SystemExit) as failure:
        migration_story.main(words)
    assert failure.value.code == 2 and text in capsys.readouterr().err


def test_a_stage_that_fails_ends_the_story():
    arguments = migration_story.parse_arguments(["--out", "no-such-folder"])
    failing = shutil.which("false")
    with pytest.raises(
        SystemExit, match="false ended with 1: .*migration_story.py .*--stages stay"
    ):
        migration_story.run_stages(arguments, failing, "stay")
