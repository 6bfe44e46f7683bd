"""Tests that the programs of `make gallery` draw pictures from their data."""

from tests.examples import flights_modules  # noqa: F401 - must be imported first

# isort: split
import numpy as np
import pytest

from benchmarks.gallery import draw, files, style
from tests.support.paths import DOCS

pytestmark = pytest.mark.once
LARGEST = 60_000  # bytes


def test_a_picture_is_drawn_from_its_data(tmp_path):
    draw.main(["accumulator"], tmp_path)
    (path,) = tmp_path.iterdir()
    assert 5_000 < path.stat().st_size < LARGEST
    assert path.name == "accumulator.png" and (DOCS / "images" / path.name).exists()


@pytest.mark.full
def test_all_pictures_are_drawn_from_their_data(tmp_path):
    draw.main(folder=tmp_path)
    drawn = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.png")}
    kept = {path.relative_to(files.IMAGES) for path in files.IMAGES.rglob("*.png")}
    assert len(drawn) > 20 and drawn <= kept
    assert all((tmp_path / path).stat().st_size < LARGEST for path in drawn)


def test_data_are_the_same_after_writing_and_reading(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "DATA", tmp_path / "new")
    data = {"what": "a test", "numbers": [1.5, 2], "rows": [[1], [2]], "found": {"a": None}}
    files.write("one", data)
    assert files.read("one") == data
    assert '"numbers": [1.5, 2]' in (tmp_path / "new" / "one.json").read_text()


def test_blocks_have_the_means_of_their_values():
    means, middles = files.block_means(np.arange(10.0), 3)
    assert means == [1.0, 4.5, 8.0] and middles == [1, 5, 8]


def test_labels_are_spread_in_their_order():
    assert style.spread([0.0, 5.0], 1.0) == [0.0, 5.0]
    low, middle, high = style.spread([0.0, 0.1, 0.05], 1.0)
    assert low < high < middle and middle - low > 1.9
