"""Tests the pages of `legacy-opt prove replay --html`."""

import html.parser
import math
from types import SimpleNamespace

import pytest

from legacy_opt.compat.cli import prove_page
from legacy_opt.proofs import Error, Report, Verdict

pytestmark = pytest.mark.once
EVIL = '<script>alert("1")</script>{0}\n\x1b[31m\u202e'
STEPS = range(1, 31)
SHORT = {"br", "line", "link", "meta", "path"}


def example(variables=30):
    """Returns the page of one optimizer that differs, and one that is equal."""
    drift = {f"layer_{i}": dict.fromkeys(STEPS, 1 + i / 100) for i in range(variables)}
    drift[EVIL] = {step: 0.0 if step < 7 else 2.0**step for step in STEPS}
    drift["bias"] = {step: 0.5 if step < 9 else math.inf for step in STEPS}
    losses = [0.7 - step / 100 for step in STEPS], [0.7 - step / 101 for step in STEPS]
    bad = Verdict("DIFFERS", Error(128.0, 7, EVIL))
    bad = Report(bad, (EVIL,), {"keras": "3"}, drift, losses, "optimizer", "another epsilon")
    good = Report(Verdict("EQUAL", Error(1, 1, "w")), (), {}, {"w": {1: 1.0}}, (losses[0],) * 2)
    proof = SimpleNamespace(hyperparameters=[{}] * 30)
    made = {"command": ["train.py", EVIL], "versions": {"tensorflow": "1.15"}, "left_out": [EVIL]}
    found = {"Adam": (proof, good), "Adagrad": (proof, bad)}
    return prove_page.page({"file": "a.proof", "implementation": EVIL}, found, made)


class Outline(html.parser.HTMLParser):
    """Collects the elements and texts of a page; every element must be closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.attributes = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in SHORT:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in SHORT
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_a_page_tells_everything():
    page = Outline(example())
    text = " ".join(page.texts)
    order = [
        "DIFFERS : Adagrad differs from step 7 on, first in <script>",
        "What was compared",
        "train.py",
        "tensorflow=1.15",
        "keras=3",
        "The optimizer differs: it gets the same gradients.",
        "Cause: another epsilon.",
        "12 more variables",
        "The largest difference is 0.00297, in step 30.",
        "What it does not tell",
        "the program that reads the data was not compared",
    ]
    places = [text.index(each) for each in order]
    assert places == sorted(places)
    assert "All losses are equal." in text
    assert page.tags.count("details") == 1 and page.tags.count("desc") == 3


def test_the_worst_variable_is_first():
    page = Outline(example())
    begin = page.texts.index("Variables", page.texts.index("Adagrad"))
    rows = [text for text in page.texts[begin:] if text.startswith(("layer", "bias", "<script"))]
    assert rows[0].startswith("<script") and rows[1:4] == ["bias", "layer_29", "layer_28"]


def test_texts_of_others_are_escaped():
    page = example()
    assert "<script" not in page and "\x1b" not in page and "\u202e" not in page
    assert page.count("&lt;script&gt;") >= 7


def test_a_page_loads_nothing():
    page = Outline(example())
    assert not {"a", "img", "script", "link", "iframe"} & set(page.tags)
    assert not {"src", "href", "onload"} & {name for name, _ in page.attributes}
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_numbers_that_cannot_be_drawn():
    verdict = Verdict("ROUNDING", Error(math.inf, 1, "w"))
    proof = SimpleNamespace(hyperparameters=[{}])
    for losses in (), ([math.nan] * 2,) * 2, ([1e308, -1e308],) * 2, ([5e-324, 5e-324],) * 2:
        for ratios in {}, {1: math.inf, 2: math.inf}, {1: 0.0, 2: 0.0}, {3: 1.0}:
            report = Report(verdict, (), {}, {"w": ratios}, losses)
            Outline(prove_page.page({}, {"Adam": (proof, report)}, {}))


def test_replay_writes_a_page(screen, tmp_path):
    proof, page = tmp_path / "a.proof", tmp_path / "page.html"
    screen.json("prove", "draw", "AdamOptimizer", "--out", proof, "--steps", 3)
    words = ["prove", "replay", proof, "--with", "legacy-opt:numpy", "--html", page]
    assert screen.json(*words)["verdict"] == "EQUAL"
    text = page.read_text(encoding="utf-8")
    assert "AdamOptimizer" in text and "EQUAL" in text and "power: it notices" in text
    assert "exists already. Pass --overwrite" in screen.refused(*words)
    assert screen.json(*words, "--overwrite")["verdict"] == "EQUAL"
