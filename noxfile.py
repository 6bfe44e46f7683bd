"""The tasks of `make`: tests on every lane, lint, benchmarks, the demo.

A lane is a version of TensorFlow with a version of Python (lanes.py). The environment of a lane,
`.nox/<lane>`, takes 1 to 2 GB. Therefore all tasks on the lane share this environment, and later
runs reuse it. (nox itself would create an environment per task.)
"""

import os
import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).resolve().parent))

# With this variable, which images of containers often set, each of the hundreds of processes that
# import TensorFlow would compile all its modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from tasks import (  # noqa: F401 - these modules define the sessions
    conformance,
    corpora,
    documentation,
    environments,
    leaving,
    measuring,
    other_packages,
    release,
    testing,
)

nox.options.sessions = ["test", "handover", "report"]
nox.options.default_venv_backend = "venv"
