"""Packaging of legacy-opt-native. `make native-wheel` runs a copy of this file."""

import json
from pathlib import Path

from setuptools import Distribution, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel


HERE = Path(__file__).resolve().parent
METADATA = json.loads((HERE / "metadata.json").read_text(encoding="utf-8"))
DESCRIPTION = """\
legacy-opt uses this package on machines without a compiler. It contains the compiled kernels of all
optimizers of legacy-opt, and libraries of TensorFlow operations that run them, for the TensorFlows
that the page *native* of legacy-opt lists (`legacy-opt docs native`). Install the same version of
both packages; `legacy-opt doctor` shows what is used.
"""


class WithLibraries(Distribution):
    """Makes setuptools build a wheel for one platform, although setuptools compiles nothing."""

    def has_ext_modules(self):
        return True


class ForAnyPython(bdist_wheel):
    """Builds a wheel for one platform and every Python 3: the libraries do not call Python."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(
    name="legacy-opt-native",
    version=(HERE / "VERSION").read_text(encoding="utf-8"),
    description="The compiled kernels of legacy-opt, for machines without a compiler",
    long_description=DESCRIPTION,
    long_description_content_type="text/markdown",
    author=METADATA["author"] or None,
    author_email=METADATA["author_email"] or None,
    url=METADATA["repository"] or None,
    license="Apache-2.0",
    python_requires=">=3.7",
    packages=["legacy_opt_native"],
    package_data={"legacy_opt_native": ["*.so"]},
    classifiers=[
        "Intended Audience :: Developers",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    distclass=WithLibraries,
    cmdclass={"bdist_wheel": ForAnyPython},
)
