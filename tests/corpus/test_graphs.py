"""Restores the files of every TensorFlow into one graph, and trains the next step."""

import pytest

from tests.corpus import comparing
from tests.support.corpus import files, graphs

FORMATS = {
    "ref": ("ref.v1", "ref.v2"),
    "resource": ("resource.v2", "resource.objects", "resource.saved_model", "estimator"),
    "partitioned": ("partitioned.v2",),
}


@pytest.mark.every_lane
@pytest.mark.parametrize("kind", FORMATS)
def test_checkpoints_are_restored_and_go_on(kind):
    sessions = {}
    for version in files.versions():
        for name in FORMATS[kind]:
            if name not in version.made["formats"]:
                continue
            saved, later = version.states(name)
            optimizers = frozenset(map(graphs.optimizer_of, saved)) - {""}
            if optimizers not in sessions:  # a new optimizer is in no file that is older
                sessions[optimizers] = graphs.Session(kind, optimizers)
            session = sessions[optimizers]
            session.start()
            session.restore(name.partition(".")[2], version.path(name))
            what = version.name, name
            comparing.assert_same(session.state(), saved, what)
            session.train(graphs.STEPS)
            comparing.assert_next(session.state(), later, version, what)


def test_every_format_is_restored():
    formats = {name for version in files.versions() for name in version.made["formats"]}
    of_graphs = {name for names in FORMATS.values() for name in names}
    assert {name for name in formats if not name.startswith("keras")} == of_graphs
