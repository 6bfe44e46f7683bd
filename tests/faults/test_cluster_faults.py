"""Clusters whose parameter server, chief or worker is killed with SIGKILL and started again."""

import sys

import pytest

from tests.faults import cluster
from tests.faults.lives import run

SAYS = {
    "worker": "%s, worker killed %d times: ",
    "ps": "%s, ps killed %d times: ",
    "chief": "%s, chief killed %d times, ",
}


@pytest.mark.full
@pytest.mark.parametrize("fault", sorted(SAYS))
def test_several_kills(fault):
    names = cluster.names_for(fault)
    command = [sys.executable, "-m", "tests.faults.cluster", fault, "--kills", "3"]
    code, output, everything = run(command, seconds=600)
    assert code == 0, everything
    lines = output.splitlines()
    assert len(lines) == len(names), everything
    for name, line in zip(names, lines):
        assert line.startswith(SAYS[fault] % (name, 3)), everything
        assert fault != "chief" or " 3 left a checkpoint unfinished: " in line, everything
    print(output)
