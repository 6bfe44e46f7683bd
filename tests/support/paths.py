"""Paths of the project's folders."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples_graph_mode"
DATA = ROOT / "tests" / "data"
