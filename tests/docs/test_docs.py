"""Tests of README.md and docs/: output of the code blocks, links and tables."""

import ast
import inspect
import re

import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.compat.cli import docs_command
from tests.docs import page_runs
from tests.support import rules
from tests.support.keras import keras_ways
from tests.support.pages import python_blocks
from tests.support.paths import ROOT
from tests.tools import old_names

v1 = tf.compat.v1

PAGES = [ROOT / "README.md"] + sorted((ROOT / "docs").glob("*.md"))


@pytest.mark.every_lane
@pytest.mark.parametrize("units", [1, 2])
def test_the_page_on_migration_names_the_addition_of_dense(units):
    dense = tf.keras.layers.Dense(units)
    dense.build([None, 3])
    call = tf.function(lambda inputs: dense(inputs))
    graph = call.get_concrete_function(tf.TensorSpec([None, 3])).graph
    types = {operation.type for operation in graph.get_operations()}
    plain = units == 1 and keras_ways.dense_1_adds_plainly()
    assert types.isdisjoint({"BiasAdd"} if plain else {"Add", "AddV2"})
    text = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
    assert "`BiasAdd`, except for `Dense(1)` in Keras 3.0 to 3.15" in " ".join(text.split())


def test_the_smallest_test_passes_and_finds_a_wrong_optimizer(monkeypatch):
    (code,) = python_blocks(ROOT / "tests" / "README.md")
    names = {}
    exec(code, names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    test()
    monkeypatch.setattr(legacy_opt, "DiffGradOptimizer", legacy_opt.LazyAdamOptimizer)
    with pytest.raises(AssertionError, match="Not equal"):
        test()


def example(page):
    """Returns a page as a parameter of a test, with the page's markers."""
    found = page_runs.read(page)
    needs = list(found.needs)
    if any(part["with"] for part in found.parts):  # not all lanes have these modules
        needs.append("every_lane")
    return pytest.param(page, id=page.stem, marks=[getattr(pytest.mark, name) for name in needs])


@pytest.mark.one_lane
@pytest.mark.parametrize("page", [example(page) for page in PAGES if page_runs.read(page).parts])
def test_the_examples_of_a_page_run_in_order_and_print_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    page_runs.execute(page_runs.read(page), tmp_path)


@pytest.mark.once
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_example_of_a_page_is_left_out(page):
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    python = [code for language, code in blocks if language == "python"]
    executed = [part["code"] for part in page_runs.read(page).parts if part["language"]]
    assert [code for code in python if code not in executed] == []
    others = "".join(code for language, code in blocks if language != "console")
    assert re.findall(r"^(?:\$ )?legacy-opt [a-z-]+(?: .*)?$", others, re.M) == []


@pytest.mark.once
def test_messages_name_pages_that_exist():
    names = set(docs_command.pages())
    for folder in "legacy_opt", "compat":
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert set(re.findall(r"legacy-opt docs ([a-z]\w+)", text)) <= names, path
            assert not re.search(r"docs/\w+\.md", text), f"{path}: write `legacy-opt docs NAME`"


def test_the_pages_optimizers_are_those_that_are_tested():
    page = (ROOT / "docs" / "write_an_optimizer.md").read_text(encoding="utf-8")
    for optimizer in (
        rules.MyLionOptimizer,
        rules.MyDiffGradOptimizer,
        rules.AccumulatedSGDOptimizer,
    ):
        assert "\n\n\n" + inspect.getsource(optimizer) + "```\n" in page, optimizer


def test_no_text_installs_tf_keras_with_its_dependencies():
    """Its dependency `tensorflow` would overwrite the files of `tensorflow-cpu`."""
    sources = [
        path for folder in ("legacy_opt", "compat") for path in (ROOT / folder).rglob("*.py")
    ]
    for path in [*PAGES, ROOT / "setup.py", *sources]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pip install (?!--no-deps)[^`\n]*tf[-_]keras", text), path
        assert path.name != "setup.py" or "tf-keras" not in text


@pytest.mark.once
def test_the_numbers_of_the_first_page_are_those_of_the_pages_that_it_links():
    texts = {path.stem: path.read_text(encoding="utf-8") for path in PAGES}
    claimed = re.findall(r"^\* \*\*(\d+) [a-z ]+\*\*", texts["index"], re.M)
    bits, versions_tested, times, names = map(int, claimed)
    lanes_and_others = re.findall(r"^\| (\d\.\S+) \| 3\.\d+ \|", texts["compatibility"], re.M)
    assert versions_tested == len(set(lanes_and_others))
    moves = re.findall(r"^\| [ABC]: .* \| (equal bit for bit) \|", texts["migration"], re.M)
    assert (bits, len(moves)) == (0, 3)
    (keras, native) = (
        re.search(rf"^\| {name} \|.* (\d+) \| [^|]+ \|$", texts["native"], re.M).group(1)
        for name in ("Keras 3 Adam", "v1 Adam, `to_keras`, native")
    )
    assert times == int(keras) // int(native)
    assert names <= old_names.replaced() < names + 100, "write the new number into docs/index.md"


@pytest.mark.once
def test_commands_of_pip_quote_what_zsh_would_expand():
    unquoted = re.compile(r'pip install(?: +(?:"[^"]*"|[\w.=/-]+))* +[\w.=-]+[\[*<>]')
    folders = (ROOT / each for each in ("legacy_opt", "compat", "examples_graph_mode"))
    for path in [*PAGES, *(path for folder in folders for path in folder.rglob("*.py"))]:
        text = path.read_text(encoding="utf-8")
        nodes = ast.walk(ast.parse(text)) if path.suffix == ".py" else ()
        for each in [str(getattr(node, "value", "")) for node in nodes] or [text]:
            assert not unquoted.search(each), path


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("https://"):
                assert (page.parent / target).exists(), (page.name, target)
