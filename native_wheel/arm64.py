"""Compiles the operations library for a TensorFlow for ARM64 (`make native-wheel ARGS=aarch64`).

python native_wheel/arm64.py FOLDER WHEEL

FOLDER is where the library is stored; WHEEL is the file of TensorFlow's wheel. This machine cannot
run that TensorFlow, so what identifies its build is read from the files of the wheel.
"""

import re
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from legacy_opt import versions
from legacy_opt.native.runtime import tensorflow_operations
from native_wheel.build import cpp_compiler

FRAMEWORK = "tensorflow/libtensorflow_framework.so.2"
SESSION = "tensorflow/python/client/_pywrap_tf_session.so"
NEEDED = ("tensorflow/include/", FRAMEWORK, SESSION)
# What `tf.version.GIT_VERSION` returns, e.g. v2.15.1-0-g63f5a65c.
REVISION = re.compile(rb"\0(v?\d+\.\d+\.[\w.-]+-\d+-g[0-9a-f]+)\0")
# A function of TensorFlow with an argument of std::string in the C++ ABI of 2011.
NEW_ABI = re.compile(rb"_ZN10tensorflow\w*NSt7__cxx1112basic_string")


def build_of(wheel, root):
    """Returns version, source revision and C++ ABI, as `versions.tensorflow_build` does.

    Args:
      wheel: the path of the wheel.
      root: the folder of its files.
    """
    revision = REVISION.search((root / SESSION).read_bytes())
    abi = NEW_ABI.search((root / FRAMEWORK).read_bytes())
    return (
        re.sub(r"\.?(rc|dev)", r"-\1", wheel.name.split("-")[1]),  # as tf.__version__ has it
        revision.group(1).decode() if revision else "unknown",
        "1" if abi else "0",
    )


def main(folder, wheel):
    """Compiles the library."""
    with tempfile.TemporaryDirectory() as work, zipfile.ZipFile(wheel) as file:
        file.extractall(work, [each for each in file.namelist() if each.startswith(NEEDED)])
        root = Path(work)
        build = build_of(Path(wheel), root)
        command = [
            *cpp_compiler("aarch64"),
            versions.cpp_standard(str(root / "tensorflow")),
            f"-I{root / 'tensorflow' / 'include'}",
            f"-D_GLIBCXX_USE_CXX11_ABI={build[2]}",
            "-DEIGEN_MAX_ALIGN_BYTES=64",  # as tf.sysconfig.get_compile_flags returns it
        ]
        path = Path(folder, tensorflow_operations.file_name([*build, "aarch64"]))
        link_flags = [f"-L{root / 'tensorflow'}", f"-l:{Path(FRAMEWORK).name}"]
        tensorflow_operations.compile_file(command, path, link_flags)
        print(*build, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
