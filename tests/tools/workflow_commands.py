"""Prints the commands of GitHub workflows, one per line, as JSON.

    PYTHONPATH=. python tests/tools/workflow_commands.py .github/workflows/*.yml

A command with `${{ matrix.X }}` is printed for each lane; other expressions are empty texts.
"""

import json
import re
import sys
from pathlib import Path

from ruamel.yaml import YAML

import lanes

EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")


def main(paths):
    """Prints the commands of some files."""
    for path in paths:
        workflow = YAML(typ="safe").load(Path(path).read_text(encoding="utf-8"))
        for job in workflow["jobs"].values():
            for command in [step["run"] for step in job["steps"] if "run" in step]:
                for lane in lanes.LANES:
                    values = {f"matrix.{key}": text for key, text in lane._asdict().items()}
                    print(json.dumps(expanded(command, {**values, "matrix.name": lane.name})))


def expanded(command, values):
    """Returns a command with the values of its expressions."""
    return EXPRESSION.sub(lambda found: values.get(found[1].strip(), ""), command)


if __name__ == "__main__":
    main(sys.argv[1:])
