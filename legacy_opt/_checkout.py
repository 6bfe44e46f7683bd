"""Makes `legacy_opt.compat` importable in a checkout, where `compat` is beside `legacy_opt`.

In a checkout, `import compat` also works, and imports the same modules.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Optional, Sequence

COMPAT = "legacy_opt.compat"
FOLDER = Path(__file__).resolve().parents[1] / "compat"


class CompatFinder(importlib.abc.MetaPathFinder):
    """Finds `legacy_opt.compat`, and resolves `compat.X` to the module `legacy_opt.compat.X`."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if name == COMPAT:
            return importlib.util.spec_from_file_location(
                name, str(FOLDER / "__init__.py"), submodule_search_locations=[str(FOLDER)]
            )
        head, _, rest = name.partition(".")
        is_same = sys.modules.get(head) is sys.modules.get(COMPAT)  # not another package "compat"
        if head == "compat" and rest and is_same:
            module = importlib.import_module(f"{COMPAT}.{rest}")
            return importlib.machinery.ModuleSpec(name, SameModule(module))
        return None


class SameModule(importlib.abc.Loader):
    """Returns a module that was imported under another name, instead of loading a second copy."""

    def __init__(self, module: ModuleType):
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType):
        module.__spec__ = self.spec  # the import system has replaced this spec by one for compat.X


def commit() -> Optional[str]:
    """Returns the commit of the checkout, such as "a9bb9efc61-dirty"; None without git."""
    if not (FOLDER.parent / ".git").exists():
        return None
    git = ["git", "-C", str(FOLDER.parent), "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        done = subprocess.run([*git, "--exclude=*"], capture_output=True)  # ignores tags
    except OSError:
        return None
    return done.stdout.decode().strip() or None


def find_compat():
    """Registers a `CompatFinder` for all later imports."""
    sys.meta_path.insert(0, CompatFinder())
