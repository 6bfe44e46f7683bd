"""Reads recorded rules, state files and proofs of the corpus; trains the next step in NumPy."""

import numpy as np
import pytest

from legacy_opt import proofs, recorded
from legacy_opt.recorded import state_files
from tests.support.corpus import files, rules
from tests.support.corpus.graphs import STEPS

pytestmark = pytest.mark.once
ANY = files.FOLDER / files.ANY


def folders():
    """Returns the folder of the files that every TensorFlow writes, and those with others."""
    return [ANY, *(v.folder / "rules" for v in files.versions() if (v.folder / "rules").exists())]


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.parent.name)
def test_rules_and_states_are_read_and_go_on(folder):
    files.assert_unchanged(each for each in folder.rglob("*") if each.is_file())
    later = np.load(str(ANY / rules.LATER))
    for path in (folder / rules.RECORDS).glob("*.json"):
        record = recorded.load(path)
        assert recorded.dumps(record).encode() == path.read_bytes(), path.name
    for path in (folder / rules.STATES).glob("*.npz"):
        state = state_files.read(path)
        optimizer = rules.training(path.stem, state.record)
        state_files.load_into(optimizer, state)
        rules.step(optimizer, STEPS)
        assert optimizer.variables[f"{path.stem}/matrix"].tobytes() == later[path.stem].tobytes()


def test_states_are_those_of_a_training():
    for path in (ANY / rules.STATES).glob("*.npz"):
        optimizer = rules.training(path.stem, state_files.read(path).record)
        for number in range(STEPS):
            rules.step(optimizer, number)
        trained, saved = state_files.state_of(optimizer), state_files.read(path)
        np.testing.assert_equal(saved.slots, trained.slots)
        np.testing.assert_equal(saved.variables, trained.variables)
        assert saved[:3] == trained[:3]


def test_proofs_are_read_and_replayed():
    files.assert_unchanged([ANY / rules.PROOFS])
    for name, proof in proofs.read_run(ANY / rules.PROOFS).proofs.items():
        target = proofs.find("legacy-opt:numpy")
        assert proofs.replay(proof, target, cause=False).verdict.name == proofs.EQUAL, name


def test_there_are_records_states_and_proofs():
    names = {path.stem for path in (ANY / rules.RECORDS).glob("*.json")}
    assert names == {path.stem for path in (ANY / rules.STATES).glob("*.npz")}
    assert len(names) > 30 and len(proofs.read_run(ANY / rules.PROOFS).proofs) > 30
