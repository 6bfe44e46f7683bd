"""Tests that the operations libraries and kernels of the package legacy-opt-native are used.

The operations of an operations library run native kernels. Each test imitates the
package with files that this machine compiles. `make native-wheel` builds the real package.
"""

import functools
import importlib.util
import inspect
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

import lanes
import legacy_opt
from legacy_opt import recorded, versions
from legacy_opt.compat.cli import doctor_command, native_diagnosis
from legacy_opt.native.compiler.emit import emit
from legacy_opt.native.runtime import (
    cache,
    probe,
    probe_in_child,
    standalone,
    tensorflow_operations,
)
from legacy_opt.native.updates import kernel_choice
from legacy_opt.optimizers import stock_rules
from legacy_opt.programs.program import UnsupportedError
from legacy_opt.recorded.native import programs_of
from legacy_opt.recorded.records import slot_inputs
from tests.native.rules import traced
from tests.native.training import Sgd
from tests.support.paths import ROOT
from tests.support.processes import programs


@functools.lru_cache(maxsize=None)
def load(name):
    """Returns a module of the folder native_wheel.

    The folder must not be on sys.path, because it also contains the package legacy_opt_native.
    """
    spec = importlib.util.spec_from_file_location(name, ROOT / "native_wheel" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Yields the folder of an installed package that contains only `__init__.py`.

    The folder of compiled kernels is new, and the process has loaded no kernels.
    """
    folder = tmp_path / "site-packages" / cache.PREBUILT_PACKAGE
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "kernels"))
    monkeypatch.setattr(cache, "_loaded", {})
    probe.failure.cache_clear()
    yield folder
    probe.failure.cache_clear()


def add(package, source, kernels_folder):
    """Compiles a C source, and adds the kernel to the package."""
    name = cache.file_name(cache.key_of(source))
    if not (kernels_folder / name).exists():
        cache.compile_library(cache.compiler(), source, ".c", kernels_folder / name)
    shutil.copy(str(kernels_folder / name), str(package))


TRAIN = """
import sys
sys.path[:0] = sys.argv[1:]
from legacy_opt.native.runtime import cache
from tests.native.training import START, is_native, native, trained
value, slot, types = trained(native())
assert is_native(types)
assert (value == START - 0.5).all() and (slot == 1).all()
print("trained without a compiler")
"""


def test_a_machine_without_compilers(package, kernels_folder):
    """Training works even if the folder of compiled kernels cannot be created."""
    add(package, emit(probe_in_child.program()), kernels_folder)
    add(package, kernel_choice.source_of(Sgd, tf.float32, False), kernels_folder)
    shutil.copy(str(kernels_folder / tensorflow_operations.name()), str(package))
    cpp_compiler = cache.find_compiler("C++", "CXX", "c++")
    standalone.compile_file(cpp_compiler, package / standalone.name())
    no_folder = package / "__init__.py" / "kernels"
    environment = {cache.FOLDER_VARIABLE: str(no_folder), "CC": "none", "CXX": "none"}
    done = programs.run("-c", TRAIN, package.parent, environment=environment, seconds=120)
    assert done.returncode == 0, done.stderr
    assert "trained without a compiler" in done.stdout


@pytest.fixture
def children(monkeypatch):
    """Replaces the child process that tries an operations library.

    Returns a list, to which a test appends the result of each try: an error message, or "" for
    success.
    """
    failures = []
    monkeypatch.setattr(probe, "_failure_in_child", lambda path: failures.pop())
    return failures


def test_an_operations_library_is_tried_once(package, children):
    prebuilt = package / tensorflow_operations.name()
    prebuilt.touch()
    children.append("")
    for _ in range(2):
        assert tensorflow_operations.find() == prebuilt
        probe.failure.cache_clear()  # as in a new process
    shutil.copystat(__file__, str(prebuilt))  # as if the package were installed again
    children.append("it computes wrong values: 7")
    with pytest.raises(UnsupportedError, match="Flow .it computes wrong values: 7.: run"):
        tensorflow_operations.find()


def test_an_operations_library_that_ends_its_process(package):
    source = "__attribute__((constructor)) void end(void) { __builtin_trap(); }"
    cache.compile_library(cache.compiler(), source, ".c", package / tensorflow_operations.name())
    with pytest.raises(UnsupportedError, match="it crashes with signal"):
        tensorflow_operations.find()


def test_an_operations_library_that_is_no_library(package):
    (package / tensorflow_operations.name()).write_text("no library")
    with pytest.raises(UnsupportedError, match="invalid ELF header|file too short"):
        tensorflow_operations.find()


def test_a_compiled_operations_library_that_is_no_library(tmp_path, monkeypatch):
    monkeypatch.setattr(tensorflow_operations, "_loaded", [])
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "kernels"))
    tensorflow_operations.path().write_text("no library")
    with pytest.raises(
        UnsupportedError, match=f"{tensorflow_operations.name()} cannot be loaded: "
    ):
        tensorflow_operations.load()


def test_the_operations_library_that_is_compiled_replaces_one_that_does_not_work(
    package, children, kernels_folder
):
    (package / tensorflow_operations.name()).touch()
    children.append("it computes wrong values: 7")
    built = cache.folder() / tensorflow_operations.name()
    shutil.copy(str(kernels_folder / tensorflow_operations.name()), str(built))
    assert tensorflow_operations.find() == built


def test_another_tensorflow(package, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    (package / tensorflow_operations.name().replace("operations-", "operations-1.")).touch()
    with pytest.raises(UnsupportedError, match="has no operations library for this build of"):
        tensorflow_operations.find()
    with pytest.raises(cache.NoCompilerError, match="There is no C.. compiler"):
        tensorflow_operations.build()


@pytest.fixture
def loaded(kernels_folder):
    return tensorflow_operations.load()


def test_the_operations_library_finds_prebuilt_kernels(loaded, package, kernels_folder, request):
    """A server must find a kernel by its hash, although the server has not used the kernel yet."""
    source = emit(traced(lambda grad, value: grad + 4.75))
    add(package, source, kernels_folder)
    key = cache.key_of(source)
    set_folders = loaded.functions.legacy_opt_set_folders
    request.addfinalizer(lambda: set_folders(str(kernels_folder).encode(), b""))
    set_folders(b"", str(package).encode())
    for name, expected in {key: True, "0" * 32: False, f"../{package.name}/{key}": False}.items():
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            found = loaded.operations.legacy_opt_has_kernel(kernel=name)
            assert session.run(found) == expected


@pytest.mark.parametrize("size", [0, 10, 64, 9000])
def test_a_damaged_kernel_is_compiled_again(size, package, kernels_folder):
    source = emit(traced(lambda grad, value: grad + 5.75))
    add(package, source, kernels_folder)
    kernel = package / cache.file_name(cache.key_of(source))
    kernel.write_bytes(kernel.read_bytes()[:size])
    _, library = cache.load(source)
    assert library._name.startswith(str(cache.folder()))


@pytest.mark.every_lane
def test_the_build_of_a_wheel():
    """What identifies a build is read from files: no machine here can import the TensorFlow."""
    arm64 = load("arm64")
    root = Path(tf.sysconfig.get_lib()).parent
    if not lanes.Lane(tf.__version__, "", "").wheel_for_arm64:
        pytest.skip("this version has no wheel for ARM64")
    # For pip, 2.22.0-rc0 is 2.22.0rc0, and 2.23.0-dev20261026 is 2.23.0.dev20261026.
    version = tf.__version__.replace("-dev", ".dev").replace("-", "")
    wheel = Path(f"tensorflow_cpu_aws-{version}-cp310-cp310-linux_aarch64.whl")
    assert arm64.build_of(wheel, root) == versions.tensorflow_build()


def test_the_package_has_the_kernels_of_records(monkeypatch):
    """In a record, the decay of rows before a sparse update is a kernel of its own."""
    build = load("build")
    make = functools.partial(build.accelerated, legacy_opt.AdamWOptimizer)
    monkeypatch.setattr(build, "made_optimizers", lambda: [make])
    found = set(build.sources())
    (group,) = recorded.load("AdamWOptimizer").groups
    programs = list(programs_of(group))
    assert len(programs) == 3
    for program, slots in programs:
        assert emit(program, slot_inputs(slots, program.by_rows)) in found


def test_doctor(package, children, monkeypatch):
    monkeypatch.setattr(native_diagnosis, "classes", list)
    for name in (
        tensorflow_operations.name(),
        "operations-1.2.3-0123456789abcdef.so",
        cache.file_name("0" * 32),
    ):
        (package / name).touch()
    children.append("")
    facts = native_diagnosis.facts()
    assert facts["operations"] == str(package / tensorflow_operations.name())
    (line,) = [text for text in doctor_command._native_texts(facts) if "legacy-opt-native" in text]
    assert line == f"legacy-opt-native: 1 kernels, operations for 1.2.3, {tf.__version__}"


WITH_KERNELS = [*native_diagnosis.classes(), *stock_rules.RULES]
WITH_KERNELS.remove(legacy_opt.ShampooOptimizer)


def numeric_arguments(cls):
    """Returns the constructor's arguments that are numbers, with their default values or 0.1."""
    defaults = {
        name: 0.1 if parameter.default is parameter.empty else parameter.default
        for name, parameter in inspect.signature(cls).parameters.items()
        # With an l2 shrinkage, there are no kernels.
        if name not in ("self", "global_step", "l2_shrinkage_regularization_strength")
    }
    return {name: each for name, each in defaults.items() if type(each) in (int, float)}


@pytest.mark.in_turn(cls=WITH_KERNELS, sparse=[False, True])
def test_the_package_has_kernels_for_all_values_of_hyperparameters(cls, sparse):
    """A kernel that contains a number is useless for other numbers, unless the package knows it."""

    if sparse and cls in (legacy_opt.NovoGradOptimizer, legacy_opt.ConditionalGradientOptimizer):
        return  # there are no such kernels
    build = load("build")

    def source(**arguments):
        make = functools.partial(build.accelerated, cls, **arguments)
        return kernel_choice.source_of(make, tf.float32, sparse)

    of_defaults = source()
    for name, default in numeric_arguments(cls).items():
        known = {**build.CHOICES, **build.CHOICES_OF_CLASS.get(cls.__name__, {})}
        values = [default / 2 or 0.25, default / 4 or 0.5]
        if isinstance(default, int):
            values = [max(1, default // 2), max(1, default // 3)]
        one, other = [source(**{name: value}) for value in values]
        assert one == other and (one == of_defaults or name in known), name
