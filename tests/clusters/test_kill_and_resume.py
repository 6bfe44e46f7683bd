"""Tests that a training resumes from its checkpoints without loss after its process was killed.

The tests call tests/clusters/faults/kill_and_resume.py, which kills and restarts the training.
After each restart, the state of the training is compared with the state of an uninterrupted
training. A difference is a loss. In some tests, the checkpoints lack state on purpose, and
kill_and_resume.py must report losses.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.clusters.faults import checkpoints, groups, kill_and_resume, training
from tests.support.every_optimizer import OPTIMIZERS
from tests.support.processes import programs

PROGRAM = pathlib.Path(kill_and_resume.__file__)
HARDEST = "accumulated AdagradDecay"  # This optimizer has the most state to restore.


def kill_and_look(*arguments):
    done = programs.run(PROGRAM, *arguments, seconds=600)
    return done.returncode, done.stdout, done.stdout + done.stderr


def test_no_bits_are_lost(full):
    kills, names = (21, kill_and_resume.CHOICES) if full else (2, [HARDEST])
    chosen = [word for name in names for word in ("--optimizer", name)]
    code, output, everything = kill_and_look("--kills", str(kills), *chosen)
    assert code == 0, everything
    assert output.splitlines()[-1] == f"kills that lost bits: 0 of {kills}", everything
    print(output)
    each = kills // len(names)
    for name in names:
        in_saves = re.search(rf"{name}: {each} kills .* (\d+) left", output).group(1)
        # Every second kill is timed to interrupt a save.
        assert int(in_saves) >= each // 2, everything


@pytest.mark.full
@pytest.mark.parametrize("signal", ["SIGTERM", kill_and_resume.HANDLED])
def test_sigterm_loses_no_bits(signal):
    arguments = ["--kills", "4", "--optimizer", "group 2", "--signal", signal]
    code, _, everything = kill_and_look(*arguments)
    assert code == 0, everything


def test_the_groups_have_all_optimizers():
    names = [name for group in groups.GROUPS.values() for name in group]
    assert sorted(names) == sorted(OPTIMIZERS)


def test_a_missing_slot_in_checkpoints_is_found(tmp_path):
    def live(forget=None):
        messages = []
        life = training.Training("LazyAdam", str(tmp_path), forget)
        life.live(lambda event, **values: messages.append(dict(values, event=event)), stop=30)
        return messages

    whole = live()  # saves a checkpoint at batch 20
    expected = {message["batch"]: message["digests"] for message in whole}
    assert kill_and_resume.losses([whole, live()], expected) == []
    ((kill, lost),) = kill_and_resume.losses([whole, live("Adam_1")], expected)
    assert kill == 0 and lost == (
        "begins at batch 20: variables that differ from the uninterrupted run: hidden/Adam_1, "
        "output/Adam_1, table/Adam_1"
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "name, forgotten",
    [
        ("AdagradDecay", "AdagradDecay_1"),
        ("LazyAdam", "global_step"),
        (HARDEST, "count"),
        ("group 2", "GradientAccumulation/gradient_sum"),
    ],
)
def test_missing_state_in_checkpoints_is_found(name, forgotten):
    # Many kills, because some lose nothing: those before the first save, and, with accumulation,
    # those after a save of zeros.
    arguments = ["--kills", "20", "--optimizer", name, "--forget", forgotten]
    code, output, everything = kill_and_look(*arguments)
    assert code == 1, everything
    assert re.search(r"\nkills that lost bits: [1-9]\d* of 20\n$", output), everything


FORKING = {
    "Life": "from tests.clusters.faults.lives import Life\n"
    "with Life(lambda send: time.sleep(600)) as life:\n    number = life.pid\n",
    "forked": "from tests.support.processes.programs import forked\n"
    "with forked('-c', 'import time; time.sleep(600)') as program:\n"
    "    number = program.process.pid\n",
}


@pytest.mark.full
@pytest.mark.parametrize("way", FORKING)
def test_forked_processes_end_with_their_parent(way):
    rest = "    print(number, flush=True)\n    time.sleep(600)\n"
    script = "import time\n" + FORKING[way] + rest
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=str(programs.ROOT), stdout=subprocess.PIPE
    )
    try:
        pid = int(process.stdout.readline())
        os.kill(pid, 0)
    finally:
        process.kill()
        process.communicate()
    programs.wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), seconds=60)


def message(event, batch, **digests):
    return {"event": event, "batch": batch, "digests": digests}


def test_what_is_a_loss():
    expected = {0: {"w": "a"}, 20: {"w": "b"}, 40: {"w": "c"}}
    begin, first = message("begins", 0, w="a"), message("saved", 20, w="b")
    goes_on, second = message("begins", 20, w="b"), message("ends", 40, w="c")

    def lost(*lives):
        return [number for number, _ in kill_and_resume.losses(lives, expected)]

    assert lost([begin, first], [goes_on, second]) == []
    assert lost([], [begin, first], [], [goes_on, second]) == []
    assert lost([begin], [begin, first, second]) == []
    assert lost([begin, first], [begin, first, second]) == [0]  # the checkpoint of batch 20 is lost
    assert lost([begin], [message("begins", 0, w="x"), first]) == [0]
    assert lost([begin], [begin, message("saved", 20, w="x")]) == [0]
    assert lost([begin], [begin, message("saved", 20, v="b")]) == [0]
    assert lost([begin], [message("begins", 7, w="a")]) == [0]
    fails = {"event": "fails"}
    assert lost([begin, first], [fails], [begin, first, second]) == [0]
    assert lost([begin, first], [], [message("begins", 20, w="x")], [goes_on, second]) == [1]


def test_what_is_unfinished(tmp_path):
    def add(*names):
        for name in names:
            (tmp_path / name).write_text("")

    add("model.ckpt-20.index", "model.ckpt-20.data-00000-of-00001")
    assert checkpoints.newest(tmp_path) == 0 and len(checkpoints.unfinished(tmp_path)) == 2
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "model.ckpt-20"\nall_model_checkpoint_paths: "model.ckpt-20"\n'
    )
    assert checkpoints.newest(tmp_path) == 20 and not checkpoints.unfinished(tmp_path)
    late = {"model.ckpt-40.data-00000-of-00001", "model.ckpt-20.index.tempstate12"}
    add(*late)
    assert {name for name, *_ in checkpoints.unfinished(tmp_path)} == late
