"""The code that README.md and docs/ show runs, and does what they say."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from tests import problems, running

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md"] + sorted((ROOT / "docs").glob("*.md"))


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)


def run_block(code, tmp_path):
    script = tmp_path / "block.py"
    script.write_text(code, encoding="utf-8")
    return runpy.run_path(str(script))


def test_the_example_of_the_readme_learns(tmp_path, capsys):
    (code,) = python_blocks(ROOT / "README.md")
    run_block(code, tmp_path)
    assert float(capsys.readouterr().out) < 1e-6


@pytest.mark.parametrize("way", running.WAYS)
@pytest.mark.parametrize("kind", ["dense", "duplicates"])
def test_diffgrad_of_the_docs_equals_its_formula(kind, way, tmp_path):
    (code,) = python_blocks(ROOT / "docs" / "write_an_optimizer.md")
    optimizer = run_block(code, tmp_path)["DiffGradOptimizer"]
    problem = problems.make(kind, "float64", steps=9)
    trace = running.WAYS[way](problem, lambda _: optimizer(0.01))
    rate, b1, b2, epsilon = (np.float64(np.float32(x)) for x in (0.01, 0.9, 0.999, 1e-8))
    for key, w in problem.values.items():
        w, m, v, previous = w.copy(), np.zeros_like(w), np.zeros_like(w), np.zeros_like(w)
        # The powers are float32 variables, as stock Adam's are.
        power1, power2 = np.float32(0.9), np.float32(0.999)
        for gradients in problem.gradients:
            g, at = gradients[key], Ellipsis
            if kind != "dense":
                at = np.unique(g.ids)
                summed = np.zeros_like(w)
                np.add.at(summed, g.ids, g.values)
                g = summed[at]
            m[at] = b1 * m[at] + (1 - b1) * g
            v[at] = b2 * v[at] + (1 - b2) * g * g
            friction = 1 / (1 + np.exp(-np.abs(previous[at] - g)))
            lr = rate * np.sqrt(1 - np.float64(power2)) / (1 - np.float64(power1))
            w[at] -= lr * friction * m[at] / (np.sqrt(v[at]) + epsilon)
            previous[at] = g
            power1, power2 = power1 * np.float32(0.9), power2 * np.float32(0.999)
        np.testing.assert_allclose(trace.steps[-1][key], w, rtol=1e-10)


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("https://"):
                assert (page.parent / target).exists(), (page.name, target)
