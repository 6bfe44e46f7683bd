"""Tests of README.md and docs/: output of the code blocks, links and tables."""

import inspect
import re
import runpy

import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from tests.support import page_runs, rules
from tests.support.cases import optimizers_in
from tests.support.pages import python_blocks
from tests.support.paths import ROOT
from tests.support.processes import programs

v1 = tf.compat.v1

PAGES = [ROOT / "README.md"] + sorted((ROOT / "docs").glob("*.md"))


def run_block(code, tmp_path):
    script = tmp_path / "block.py"
    script.write_text(code, encoding="utf-8")
    return runpy.run_path(str(script))


@pytest.mark.every_lane
def test_the_example_of_the_readme_runs_as_pasted_and_learns():
    """In another process, because this process has enabled eager execution on TensorFlow 1.15."""
    (code,) = python_blocks(ROOT / "README.md")
    done = programs.run("-c", code, seconds=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-6


@pytest.mark.every_lane
@pytest.mark.parametrize("units", [1, 2])
def test_the_page_on_migration_names_the_addition_of_dense(units):
    dense = tf.keras.layers.Dense(units)
    dense.build([None, 3])
    call = tf.function(lambda inputs: dense(inputs))
    graph = call.get_concrete_function(tf.TensorSpec([None, 3])).graph
    types = {operation.type for operation in graph.get_operations()}
    plain = versions.keras_facts()["generation"] == 3 and units == 1
    assert types.isdisjoint({"BiasAdd"} if plain else {"Add", "AddV2"})
    text = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
    assert "`BiasAdd`, except for `Dense(1)` in Keras 3" in " ".join(text.split())


def test_the_smallest_test_passes_and_finds_a_wrong_optimizer(monkeypatch):
    (code,) = python_blocks(ROOT / "tests" / "README.md")
    names = {}
    exec(code, names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    test()
    monkeypatch.setattr(legacy_opt, "DiffGradOptimizer", legacy_opt.LazyAdamOptimizer)
    with pytest.raises(AssertionError, match="Not equal"):
        test()


# Matches a Python block, and the text block with the output if there is one.
BLOCKS = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.S)


RUNNING = [
    "adagrad_decay.md",
    "adam_family.md",
    "estimators.md",
    "keras.md",
    "layerwise.md",
    "memory.md",
    "plain_keras.md",
    "signs.md",
    "training_helpers.md",
    "weight_decay.md",
    "wrappers.md",
    "write_an_optimizer.md",
]


# These pages have hidden parts, files and commands, too.
WITH_COMMANDS = [
    pytest.param("any_optimizer.md", marks=pytest.mark.keras3),
    "command_line.md",
    "migration.md",
    "old_scripts.md",
]


@pytest.mark.every_lane
@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_the_parts_of_a_page_run_in_order_and_print_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    page_runs.execute(page_runs.read(ROOT / "docs" / name), tmp_path)


@pytest.mark.parametrize("name", RUNNING)
def test_the_blocks_of_a_page_run_one_after_another_and_print_what_it_says(name, capsys):
    names = {"__name__": "page"}
    blocks = BLOCKS.findall((ROOT / "docs" / name).read_text(encoding="utf-8"))
    assert len(blocks) == len(python_blocks(ROOT / "docs" / name)) > 0
    for code, output in blocks:
        exec(compile(code, name, "exec"), names)
        assert capsys.readouterr().out == output, code


def test_the_page_which_keras_lists_this_keras(tmp_path, capsys):
    page = ROOT / "docs" / "which_keras.md"
    (code,) = python_blocks(page)
    run_block(code, tmp_path)
    assert f"| `{capsys.readouterr().out.strip()}` |" in page.read_text(encoding="utf-8")


def test_the_pages_optimizers_are_those_that_are_tested():
    page = (ROOT / "docs" / "write_an_optimizer.md").read_text(encoding="utf-8")
    for optimizer in rules.MyDiffGradOptimizer, rules.AccumulatedSGDOptimizer:
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


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("https://"):
                assert (page.parent / target).exists(), (page.name, target)


# The table of docs/from_to.md.


def from_to():
    """Returns the cells of each row: two lists of names, and the texts of the last two cells."""
    page = (ROOT / "docs" / "from_to.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split(" |") for line in page.splitlines() if line.startswith("| ")]
    names = lambda cell: re.findall(r"`([^`]+)`", cell)  # noqa: E731
    return [(names(cells[0]), names(cells[1]), cells[2].strip(), cells[3]) for cells in rows[1:]]


def test_the_page_lists_every_optimizer_of_tensorflow_1():
    listed = {name for names, *_ in from_to() for name in names}
    assert {"tf.train." + name for name in optimizers_in(v1.train)} <= listed
    if versions.has_contrib():
        public = {name for name in dir(tf.contrib.opt) if not name.startswith("_")}
        assert {"tf.contrib.opt." + name for name in public} <= listed
    assert len(listed) == sum(len(names) for names, *_ in from_to())


def test_every_replacement_exists():
    listed = set()
    for names, instead, equal, _ in from_to():
        assert bool(instead) == (equal != "nothing here"), names
        for text in instead:
            for name in re.findall(r"(?:legacy_opt|tf)(?:\.\w+)+", text):
                found = {"tf": tf, "legacy_opt": legacy_opt}[name.split(".")[0]]
                for attribute in name.split(".")[1:]:
                    found = getattr(found, attribute)
                listed.add(name)
    ours = set(optimizers_in(legacy_opt)) - {"RuleOptimizer", "OptimizerWrapper"}
    assert {"legacy_opt." + name for name in ours} <= listed


@pytest.mark.parametrize(
    "name, words",
    [
        ("LazyAdam", "did you mean 'LazyAdamOptimizer'"),
        ("LazyAdamOptimzer", "did you mean 'LazyAdamOptimizer'"),
        ("Slots", "did you mean 'Slot'"),
        ("AdamOptimizer", "has tf.compat.v1.train.AdamOptimizer ("),
        ("Momentum", "has tf.compat.v1.train.MomentumOptimizer ("),
        ("GGTOptimizer", "attribute 'GGTOptimizer' ("),
    ],
)
def test_the_error_for_an_unknown_name_suggests_a_name(name, words):
    assert not hasattr(legacy_opt, name)
    with pytest.raises(AttributeError) as error:
        getattr(legacy_opt, name)
    assert words in str(error.value) and "docs/from_to.md" in str(error.value)
    with pytest.raises(AttributeError, match="has no attribute '__wrapped__'$"):
        getattr(legacy_opt, "__wrapped__")  # noqa: B009


def test_names_without_replacement_are_missing():
    for names, _, equal, _ in from_to():
        for name in names if equal == "nothing here" else ():
            assert not hasattr(legacy_opt, name.split(".")[-1]), name
