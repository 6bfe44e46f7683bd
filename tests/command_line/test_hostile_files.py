"""Runs a part of the table of hostile files; `python -m tests.tools.hostile_files` runs all."""

import pytest

from tests.support.processes import programs

# Those that take long to write are left out.
MADE = ("indexes", "of_format_v1", "object_graphs", "folders", "records", "special_files")


@pytest.mark.one_lane
def test_hostile_files_cost_little_and_achieve_nothing():
    words = ("-m", "tests.tools.hostile_files", "--every", 17, "--only", *MADE)
    done = programs.run(*words, seconds=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " runs, 0 with problems" in done.stdout
