"""Builds the site of the documentation.

    python docs/site/build.py OUTPUT

The pages of docs/, CHANGELOG.md and one page of reference for each public module are copied into
OUTPUT/source, and Sphinx builds OUTPUT/html from them. The build fails on any warning, and if a
public name is not in the reference.
"""

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

from sphinx.util.inventory import InventoryFile

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.tools import public_api  # noqa: E402


def results():
    """Returns a dict from full names of classes that public functions return to the classes."""
    return {f"{cls.__module__}.{cls.__name__}": cls for cls in public_api.RESULTS}


def copy_pages(source):
    """Copies docs/ and CHANGELOG.md into an empty folder, and parts of README.md.

    The first page includes these parts: the files that README shows, and what is between markers
    such as <!-- exact -->, as exact.inc.
    """
    ignored = shutil.ignore_patterns("site", "data", "*.txt")
    shutil.copytree(str(ROOT / "docs"), str(source), ignore=ignored)
    parts = {"changelog.md": text_with_links_from_docs("CHANGELOG.md")}
    readme = text_with_links_from_docs("README.md")
    parts.update(re.findall(r"^<!-- file: (\S+) -->\n```python\n(.*?)^```$", readme, re.M | re.S))
    marked = re.findall(r"^<!-- (\w+) -->\n(.*?)^<!-- /\1 -->$", readme, re.M | re.S)
    parts.update((f"{name}.inc", text) for name, text in marked)
    for name, text in parts.items():
        (source / name).write_text(text, encoding="utf-8")


def text_with_links_from_docs(name):
    """Returns the text of a file of the checkout, whose links to pages are as from docs/."""
    return re.sub(r"\]\(docs/", "](", (ROOT / name).read_text(encoding="utf-8"))


def write_reference(folder):
    """Writes one page for each public module, and a page with links to them."""
    folder.mkdir()
    pages = []
    for module, names in public_api.public_names().items():
        text = [title(f"`{module}`"), f".. currentmodule:: {module}\n"]
        text += [directive(f"{module}.{name}", value) for name, value in names.items()]
        (folder / f"{module}.rst").write_text("\n".join(text), encoding="utf-8")
        pages.append(module)
    text = [title("Results"), "Public functions return objects of these classes.\n"]
    text += [directive(name, cls) for name, cls in results().items()]
    (folder / "results.rst").write_text("\n".join(text), encoding="utf-8")
    text = [
        title("Reference"),
        "All public names, by module.\n",
        ".. toctree::",
        "   :maxdepth: 1\n",
    ]
    text += [f"   {page}" for page in [*pages, "results"]]
    (folder / "index.rst").write_text("\n".join(text) + "\n", encoding="utf-8")


def title(text):
    """Returns a title in reStructuredText."""
    return f"{text}\n{'=' * len(text)}\n"


def directive(name, value):
    """Returns the directive that documents a name."""
    if isinstance(value, type):
        fields = getattr(value, "_fields", ())  # the section "Attributes" describes them
        members = ", ".join(sorted(public_api.members(value).difference(fields)))
        return f".. autoclass:: {name}\n" + (f"   :members: {members}\n" if members else "")
    if callable(value):
        return f".. autofunction:: {name}\n"
    if inspect.ismodule(value):
        return f".. automodule:: {name}\n   :no-members:\n"
    content = repr(value) if isinstance(value, float) else ", ".join(map(repr, value))
    own = name.split(".")[-1]  # Sphinx puts the current module before it
    return f".. py:data:: {own}\n   :type: {type(value).__name__}\n\n   With {content}.\n"


def missing_names(html):
    """Returns the public names that the built reference lacks."""
    inventory = InventoryFile.loads((html / "objects.inv").read_bytes(), uri="").data
    documented = {
        name for kind, names in inventory.items() if kind.startswith("py:") for name in names
    }
    expected = {
        f"{module}.{name}" for module, names in public_api.public_names().items() for name in names
    }
    return sorted((expected | set(results())) - documented)


def main(output):
    """Builds the site and returns the exit code."""
    source, html = output / "source", output / "html"
    for folder in source, html:
        shutil.rmtree(str(folder), ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)
    copy_pages(source)
    write_reference(source / "reference")
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-E", "-W", "--keep-going", "-j", "2"]
    done = subprocess.run([*sphinx, "-c", str(Path(__file__).parent), str(source), str(html)])
    if done.returncode:
        return done.returncode
    missing = missing_names(html)
    if missing:
        print("The reference lacks public names: " + ", ".join(missing), file=sys.stderr)
        return 1
    print(f"The site: {html / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
