"""Checks the checksums of the corpus, and that its files are never written again."""

import shutil

import pytest
import tensorflow as tf

import lanes
from tests.support.corpus import files
from tests.tools import corpus

pytestmark = pytest.mark.once


def test_no_file_was_changed():
    assert files.problems() == []


def test_the_corpus_is_small():
    assert sum((files.FOLDER / name).stat().st_size for name in files.files_in(files.FOLDER)) < 10e6


def test_every_lane_has_files():
    known = {version.name for version in files.versions()}
    assert {lane.tensorflow for lane in lanes.LANES} <= known


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """Returns a copy of the corpus in which one byte of each file is another one."""
    folder = tmp_path_factory.mktemp("damaged") / "corpus"
    shutil.copytree(str(files.FOLDER), str(folder))
    for number, name in enumerate(files.files_in(folder)):
        content = bytearray((folder / name).read_bytes())
        content[number * 7919 % len(content)] ^= 1 << number % 8
        (folder / name).write_bytes(content)
    return folder


def test_a_changed_byte_in_any_file_is_noticed(damaged):
    assert files.problems(damaged) == [f"changed: {name}" for name in files.files_in(damaged)]


def test_a_changed_file_is_not_read(damaged):
    for original in files.versions():
        version = original._replace(folder=damaged / original.name)
        for name in version.made["formats"]:
            with pytest.raises(AssertionError, match="changed"):
                version.path(name)
            with pytest.raises(AssertionError, match="changed"):
                version.states(name)


def test_missing_and_new_files_are_noticed(tmp_path):
    (tmp_path / "new").write_text("new")
    files.write_sums(tmp_path, {"missing": "0" * 64})
    assert files.problems(tmp_path) == ["missing: missing", "no checksum: new"]


def test_files_are_never_written_again(tmp_path):
    there = tmp_path / tf.__version__ / "ref.v1"
    there.parent.mkdir()
    there.write_text("old")
    with pytest.raises(SystemExit, match="never written again"):
        corpus.main(tmp_path)
    assert there.read_text() == "old"


def test_nothing_is_added_to_a_damaged_corpus(tmp_path):
    (tmp_path / "unknown").write_text("")
    with pytest.raises(SystemExit, match="no checksum: unknown"):
        corpus.main(tmp_path)
