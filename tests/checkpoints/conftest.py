"""Fixtures for tests of v1 checkpoints, which are checkpoints of `tf.compat.v1.train.Saver`."""

import pytest

from tests.support.checkpoints.v1_checkpoints import problem, trained_in_v1


@pytest.fixture
def original(tmp_path):
    """Returns a function that trains in a Session, saves a checkpoint and returns its path."""

    def make_original(make, one_problem=None, **options):
        one_problem = problem() if one_problem is None else one_problem
        return trained_in_v1(tmp_path / "original", one_problem, make, **options)

    return make_original
