"""Tests of clusters whose parameter server, chief or worker is killed (SIGKILL) and restarted."""

import pytest

from tests.clusters.faults import cluster
from tests.support.processes import programs

SAYS = {
    "worker": "%s, worker killed %d times: ",
    "ps": "%s, ps killed %d times: ",
    "chief": "%s, chief killed %d times (",
}


@pytest.mark.full
@pytest.mark.parametrize("fault", sorted(SAYS))
def test_several_kills(fault):
    names = cluster.names_for(fault)
    done = programs.run("-m", "tests.clusters.faults.cluster", fault, "--kills", "3", seconds=600)
    everything = done.stdout + done.stderr
    assert done.returncode == 0, everything
    lines = done.stdout.splitlines()
    assert len(lines) == len(names), everything
    for name, line in zip(names, lines):
        assert line.startswith(SAYS[fault] % (name, 3)), everything
        assert fault != "chief" or "(3 of the kills interrupted a save): " in line, everything
    print(done.stdout)
