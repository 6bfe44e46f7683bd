"""The site of the documentation."""

import sys
from pathlib import Path

import nox

import lanes
from tasks.environments import ENVIRONMENTS, LANES, QUIET_TENSORFLOW, environment, small_environment


@nox.session(python=False)
def docs(session):
    """Builds the site of the documentation, in .nox/site/html. Any warning is an error."""
    build_docs(session)


@nox.session(python=False)
def docs_open(session):
    """Builds the site, and opens it in a browser."""
    index = build_docs(session) / "index.html"
    session.run(sys.executable, "-m", "webbrowser", index.as_uri(), external=True)


@nox.session(python=False)
def docs_test(session):
    """Builds the site, and tests it in the distribution's Chromium. Arguments go to pytest."""
    for program in "/usr/bin/chromium", "/usr/bin/chromedriver":
        if not Path(program).exists():
            session.error(f"{program} is missing: install Debian's chromium and chromium-driver")
    site = build_docs(session)
    axe = ENVIRONMENTS / "axe"
    if not (axe / "node_modules").exists():
        packages = "--prefix", str(axe), "--no-audit", "--no-fund", lanes.AXE
        session.run("npm", "install", *packages, external=True)
    script = axe / "node_modules" / "axe-core" / "axe.min.js"
    env = {"LEGACY_OPT_SITE": str(site), "AXE": str(script)}
    words = ["-q", "tests/site/browser_site.py", *session.posargs]
    session.run(docs_python(session), "-m", "pytest", *words, env=env, external=True)
    print(f"Look at the screenshots: {site.parent / 'screenshots'}")


def build_docs(session):
    """Builds the site and returns its folder."""
    folder = ENVIRONMENTS / "site"
    command = [docs_python(session), "docs/site/build.py", str(folder)]
    session.run(*command, env=QUIET_TENSORFLOW, external=True)
    return folder / "html"


def docs_python(session):
    """Creates the environment of Sphinx, which also sees the newest lane's, and returns its Python.

    Sphinx imports the package, and so TensorFlow. Its own packages come first.
    """
    lane = environment(session, LANES[-1])
    base = lanes.find_python(LANES[-1].python)
    home = ENVIRONMENTS / "docs"
    python = small_environment(session, home, base, *lanes.DOCS_PACKAGES)
    folder = f"lib/python{LANES[-1].python}/site-packages"
    others = Path(lane).parents[1] / folder
    line = f"import site; site.addsitedir({str(others)!r})\n"
    (home / folder / "lane.pth").write_text(line, encoding="utf-8")
    return python
