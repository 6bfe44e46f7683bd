"""Which package of the product may import which: counted are all imports, also late and lazy ones."""

import ast
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.once

CORE = {"legacy_opt.versions", "legacy_opt.core"}
PUBLIC = {"legacy_opt", "legacy_opt.public"}
# What each package may import beside itself. A module that is no package is named, too.
ALLOWED = {
    "legacy_opt._checkout": set(),
    "legacy_opt.versions": set(),
    "legacy_opt.core": {"legacy_opt.versions"},
    "legacy_opt.optimizers": CORE,
    "legacy_opt.wrappers": CORE,
    "legacy_opt.access": CORE,
    "legacy_opt.kernels": CORE,
}
ALLOWED["legacy_opt.training"] = CORE | {"legacy_opt.optimizers", "legacy_opt.wrappers"}
ALLOWED["legacy_opt.public"] = ALLOWED["legacy_opt.training"] | {"legacy_opt.training"}
V1 = set(ALLOWED) | {"legacy_opt"}
COMPAT = {
    "text": set(),
    "messages": set(),
}


def modules():
    """Yields the name and the path of each module of the product."""
    for folder, home in (("legacy_opt", "legacy_opt"), ("compat", "legacy_opt.compat")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            words = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join([home, *(word for word in words if word != "__init__")]), path


if __name__ == "__main__":
    import collections

    NAMES = dict(modules())

    def package(m):
        parts = m.split(".")
        if parts[:2] == ["legacy_opt", "compat"]:
            return ".".join(parts[:3])
        return ".".join(parts[:2])

    edges = collections.defaultdict(set)
    for m, path in NAMES.items():
        here = m if path.name == "__init__.py" else m.rpartition(".")[0]
        for n in ast.walk(ast.parse(path.read_text())):
            found = []
            if isinstance(n, ast.ImportFrom):
                base = n.module or ""
                if n.level:
                    up = here.split(".")[: len(here.split(".")) - n.level + 1]
                    base = ".".join(up + ([base] if base else []))
                found = [
                    base + "." + a.name if base + "." + a.name in NAMES else base for a in n.names
                ]
            elif isinstance(n, ast.Import):
                found = [a.name for a in n.names]
            elif isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value in NAMES:
                found = [n.value]
            for f in found:
                if f.startswith("legacy_opt") and package(f) != package(m):
                    edges[package(m)].add((package(f), m + " -> " + f))
    for p in sorted(edges):
        print(p)
        by = collections.defaultdict(list)
        for q, why in edges[p]:
            by[q].append(why)
        for q in sorted(by):
            print("    ", q, len(by[q]), by[q][0] if len(by[q]) < 3 else "")
