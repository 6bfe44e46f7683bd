"""Checks that packages import only allowed packages, also inside functions and by lazy imports.

    python tests/tools/layers.py

The program needs only Python. It prints the wrong imports, and fails if there are any.
"""

import ast
import functools
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

OF_V1 = ["legacy_opt", "core", "optimizers", "wrappers", "programs", "native", "versions"]
SHARED = [".arrays", ".file_endings", ".messages", ".plain_text", ".special_files"]
ADAPTED = [".in_keras.v1_optimizers", ".in_keras.keras_adapters"]
BRIDGES = [".in_keras.keras_bridge", ".in_keras.optimizer_v2", ".in_keras.bridge"]
# The only import that runs upwards. It takes place when a user has enabled native kernels.
HOOK = "legacy_opt.core.kernel_hook", "legacy_opt.native.updates.one_step"
# The packages and modules that each package may import besides itself. A name that begins with a
# dot is a package or module of compat.
ALLOWED = {
    "_checkout": [".compat"],  # has the string "legacy_opt.compat", but does not import it
    "durable_files": [],
    "versions": [],
    "core": ["versions"],
    "optimizers": ["core", "versions"],
    "wrappers": ["core", "versions"],
    "programs": ["core", "optimizers", "versions"],
    "native": ["durable_files", "core", "optimizers", "wrappers", "programs", "versions"],
    # Only `recording` needs TensorFlow.
    "recorded": ["durable_files", "core", "wrappers", "programs", "native"],
    "proofs": ["durable_files", "core", "programs", "recorded"],
    "training": ["core", "optimizers", "wrappers", "versions"],
    "rule_writing": ["core"],
    "public": ["core", "optimizers", "wrappers", "training"],
    "legacy_opt": ["_checkout", "public", ".compat"],
    "__main__": [".cli"],
    # What all wings of compat share.
    ".arrays": [],
    ".file_endings": [],
    ".messages": [],
    ".plain_text": [],
    ".special_files": [],
    # v1 optimizers in Keras, and Keras optimizers in graphs.
    ".in_keras.beta_powers": [],
    ".in_keras.embedding_rows": ["versions", "core"],
    ".in_keras.side_by_side": ["recorded"],
    ".in_keras.weight_averages": [*OF_V1, *ADAPTED],
    ".in_keras.v1_optimizers": [*OF_V1, ".messages"],
    ".in_keras.keras_adapters": ["versions", "core", ".in_keras.v1_optimizers"],
    ".in_keras.keras_bridge": [*OF_V1, ".arrays", ".messages", *ADAPTED],
    ".in_keras.optimizer_v2": ["versions", "core", ".arrays", *ADAPTED, ".in_keras.keras_bridge"],
    ".in_keras.keras_in_graphs": [*OF_V1, ".messages", *ADAPTED],
    ".in_keras.bridge": ["legacy_opt", "versions", "core", *ADAPTED, *BRIDGES],
    ".in_keras.session_comparison": [
        *[*OF_V1, "recorded", "proofs"],
        ".arrays",
        ".in_keras.side_by_side",
        *ADAPTED,
        *BRIDGES,
    ],
    ".in_keras.plain_keras": [
        *[*OF_V1, "recorded", ".arrays", ".messages", ".in_keras.beta_powers"],
        *[".in_keras.side_by_side", *ADAPTED, *BRIDGES],
    ],
    # State of optimizers in files.
    ".state.user_objects": ["core", ".messages"],
    ".state.checkpoint_files": [
        *[
            "durable_files",
            "core",
            "versions",
            ".arrays",
            ".file_endings",
            ".plain_text",
            ".special_files",
        ],
    ],
    ".state.checkpoint_contents": [
        *["core", "recorded", ".arrays", ".file_endings", ".plain_text"],
        ".state.checkpoint_files",
    ],
    ".state.checkpoints": [
        *[*OF_V1, "durable_files", "recorded", "proofs", *SHARED, ".state.user_objects"],
        *[".in_keras.beta_powers", *ADAPTED],
        *[".state.checkpoint_files", ".state.checkpoint_contents"],
    ],
    # Old names, and programs that use them.
    ".contrib": ["versions", "core"],
    ".check_devices": ["legacy_opt", "versions", "optimizers", "recorded", ".cli"],
    ".estimator": ["versions", "core", ".estimator_names"],
    ".estimator_names": [],
    ".old_programs.old_names": ["legacy_opt", "optimizers", "versions", ".contrib", ".estimator"],
    ".old_programs.source_analysis": [
        *[".file_endings", ".plain_text", ".special_files", ".estimator_names"],
        ".old_programs.old_names",
    ],
    ".old_programs.proving": ["versions", "core", "programs", "native", "recorded", "proofs"],
    ".old_programs.script_runner": [
        *["versions", "core", "public", ".special_files", ".old_programs.old_names"],
        ".old_programs.source_analysis",
    ],
}
EVERYTHING_BELOW = [each for each in ALLOWED if each != ".check_devices"]
ALLOWED[".compat"] = ["core", ".cli", *(each for each in ALLOWED if each.startswith("."))]
ALLOWED[".cli"] = EVERYTHING_BELOW


def modules():
    """Returns the files of legacy_opt and compat as {module name: path}."""
    found = {}
    for folder, home in ("legacy_opt", "legacy_opt"), ("compat", "legacy_opt.compat"):
        for path in (ROOT / folder).rglob("*.py"):
            words = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join([home, *(word for word in words if word != "__init__")])] = path
    return found


def package_of(module):
    """Returns the key in `ALLOWED` that applies to a module."""
    words = module.split(".")[1:]
    if words[:1] == ["compat"]:
        names = ["." + ".".join(words[1 : 1 + length]) for length in (2, 1)]
        return next((name for name in names if name in ALLOWED), ".compat")
    return words[0] if words else "legacy_opt"


@functools.lru_cache(maxsize=None)
def nodes_in(source):
    """Returns the imports and constants of a module. Tests ask for those of the same files."""
    kinds = "Import", "ImportFrom", "Constant", "Str"  # Python 3.7 has Str
    return [node for node in ast.walk(ast.parse(source)) if type(node).__name__ in kinds]


def names_in(module, source, is_package, known):
    """Yields the names that a module imports, and the modules in `known` that its strings name."""
    here = module.split(".")
    for node in nodes_in(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level + is_package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        else:
            # The string may be an argument of import_module, or name a module that is imported
            # lazily.
            text = node.s if type(node).__name__ == "Str" else node.value
            for name in (text, f"{module}.{text}") if "import_module" in source else (text,):
                if "." in str(name) and name in known:
                    yield name


def imports(files):
    """Yields the imports of modules in `files`, as pairs (importing module, imported name)."""
    for module, path in files.items():
        source = path.read_text(encoding="utf-8")
        for name in names_in(module, source, path.name == "__init__.py", files):
            while name not in files and "." in name:
                name = name.rpartition(".")[0]
            if (name in files or name == "compat") and (module, name) != HOOK:
                yield module, name


def wrong_imports(files):
    """Returns the imports that are not allowed, as pairs (importing module, imported name)."""
    return [
        (module, name)
        for module, name in imports(files)
        if name == "compat"
        or package_of(name) not in [package_of(module), *ALLOWED[package_of(module)]]
    ]


def circles(files):
    """Returns the modules that are in a circle of imports, or import such a module.

    Imports of public names by the modules of compat do not count: `legacy_opt` and
    `legacy_opt.compat` import the homes of these names on first use.
    """
    below = {module: set() for module in files}
    for module, name in imports(files):
        if name in files and name not in ("legacy_opt", "legacy_opt.compat"):
            below[module].add(name)
    return set(below) - set(floors(below))


def floors(below):
    """Returns the floor of each name: 1 plus the highest floor of the names below it.

    Names that are in a circle, or above one, have no floor. `below` is a dict from names to sets.
    """
    found = {}
    while True:
        left = set(below) - set(found)
        free = {name: below[name] - {name} for name in left if not below[name] & left - {name}}
        if not free:
            return found
        found.update({n: 1 + max(map(found.get, its), default=0) for n, its in free.items()})


def problems():
    """Returns a line for each wrong import of the checkout."""
    files = modules()
    wrong = [f"{module} must not import {name}" for module, name in wrong_imports(files)]
    return wrong + [f"{module} is in a circle, or imports one" for module in sorted(circles(files))]


if __name__ == "__main__":
    sys.exit("\n".join(problems()) or 0)
