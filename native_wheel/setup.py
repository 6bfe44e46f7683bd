"""Packaging of legacy-opt-native. `make native-wheel` runs a copy of this file."""

from pathlib import Path

from setuptools import Distribution, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel


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
    version=Path(__file__).with_name("VERSION").read_text(encoding="utf-8"),
    description="The compiled kernels of legacy-opt, for machines without a compiler",
    license="Apache-2.0",
    python_requires=">=3.7",
    packages=["legacy_opt_native"],
    package_data={"legacy_opt_native": ["*.so"]},
    distclass=WithLibraries,
    cmdclass={"bdist_wheel": ForAnyPython},
)
