"""Tests that the pictures of docs/gallery.md exist, are small, and have data."""

import json
import re

import pytest

from tests.support.cases import public_optimizers
from tests.support.pages import text_of
from tests.support.paths import DOCS
from tests.tools import catalogue_cards

pytestmark = pytest.mark.once
DATA = DOCS / "data" / "gallery"
CURVES = "images/curves/"
# {picture: the name of its data}, if the names differ
OTHER_NAMES = {"migration": "story"}


def pictures():
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    return re.findall(r"!\[([^\]]+)\]\((images/[^)]+\.png)\)", text)


def test_each_picture_exists_is_small_and_has_data():
    found = pictures()
    assert len(found) >= 8
    for alternative, path in found:
        picture = DOCS / path
        assert picture.exists(), f"no {path}: run `make gallery`; for a curve, with ARGS=catalogue"
        limit = 16_000 if path.startswith(CURVES) else 60_000
        assert len(alternative) > 20, path
        assert picture.stat().st_size < limit, path
        name = (
            "catalogue" if path.startswith(CURVES) else OTHER_NAMES.get(picture.stem, picture.stem)
        )
        data = DATA / (name + ".json")
        assert data.stat().st_size < 100_000, path
        assert len(json.loads(data.read_text(encoding="utf-8"))["what"]) > 20


def test_all_data_belong_to_a_picture():
    names = {
        OTHER_NAMES.get(name, name) for name in (path.split("/")[-1][:-4] for _, path in pictures())
    }
    assert {path.stem for path in DATA.iterdir()} <= names


def test_each_optimizer_of_the_catalogue_has_a_curve():
    drawn = {path[len(CURVES) : -4] for _, path in pictures() if path.startswith(CURVES)}
    missing = {optimizer.__name__ for optimizer in public_optimizers()} - drawn
    assert not missing, "run: make gallery ARGS=catalogue; python -m tests.tools.catalogue_cards"
    assert catalogue_cards.gallery_text() == text_of(catalogue_cards.GALLERY)
