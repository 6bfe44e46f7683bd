"""Where the project's files are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples_graph_mode"
DATA = ROOT / "tests" / "data"
