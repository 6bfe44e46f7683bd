"""Tests that old scripts train under `legacy-opt run`, and the page that shows their losses.

`make scripts` runs all scripts on every lane, and writes the page.
"""

import re

import numpy as np
import pytest

import lanes
from tests.support import estimators
from tests.support.pages import part_of, text_of
from tests.support.processes.command_line import start
from tests.tools import old_scripts


def check(name):
    """Checks that a script trains as on TensorFlow 1.15, where the page was measured.

    Returns:
      The output of the script.
    """
    process = start("run", old_scripts.SCRIPTS / name)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    losses = old_scripts.losses_in(output)
    row = next(line for line in text_of("old_scripts.md").splitlines() if f"| `{name}`" in line)
    first, last = map(float, re.findall(r"[\d.]+", row.split("|")[2]))
    np.testing.assert_allclose(losses[0], first, rtol=1e-5)
    # The training amplifies differences in the last bits.
    np.testing.assert_allclose(losses[-1], last, rtol=0.1)
    assert losses[-1] < 0.6 * losses[0]
    return output


@estimators.needed
def test_a_script_in_the_style_of_bert_trains():
    check("bert_style_classifier.py")


def test_a_script_in_the_style_of_nmt_trains():
    sentences = old_scripts.sentences_in(check("nmt_style_attention.py"))
    assert sentences == ["h f h h d a", "g c a a a c", "f f h d", "f b", "c c c g g"]  # on 1.15


@pytest.mark.once
def test_losses_are_found_in_the_output_of_a_script():
    output = "step 1 loss = 2.5 gN 0.1\neval_loss = 9\nloss = 1.5e-05\n"
    assert old_scripts.losses_in(output) == [2.5, 1.5e-05]


@pytest.mark.once
def test_entries_of_the_page():
    assert old_scripts.entry([2.0, 1.0], [2.0, 1.0]) == "all equal"
    assert old_scripts.entry([2.0, 1.5, 1.0], [2.0, 1.0, 1.0]) == "equal, equal (up to 5e-01)"
    assert old_scripts.entry([2.002, 1.0], [2.0, 1.1]) == "1e-03, 9e-02 (up to 9e-02)"
    assert old_scripts.entry([2.0], [2.0, 1.0]) == "1 losses"


@pytest.mark.once
def test_the_page_shows_all_scripts_on_all_lanes():
    page = text_of("old_scripts.md")
    table = part_of(page, "losses").splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    original, *others = lanes.LANES
    assert cells[0][1:] == [f"losses on {original.tensorflow}", *(x.tensorflow for x in others)]
    assert [row[0] for row in cells[2:-1]] == [f"`{name}`" for name in old_scripts.NAMES]
    number = r"(equal|\de-\d\d)"
    for row in cells[2:-1]:
        for cell in row[2:]:
            assert re.fullmatch(rf"all equal|{number}, {number} \(up to \de-\d\d\)", cell), cell
