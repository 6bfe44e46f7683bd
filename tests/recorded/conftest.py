"""Builds the operations library, as for the tests of native kernels."""

from tests.native.conftest import kernels_folder  # noqa: F401 - a fixture
