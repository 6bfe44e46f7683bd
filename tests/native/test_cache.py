"""Tests the folder of compiled kernels: file permissions, compilers that fail, and threads."""

import platform
import stat
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.native.compiler.emit import emit
from legacy_opt.native.runtime import cache, compiled_kernels, standalone, tensorflow_operations
from tests.native.rules import traced
from tests.support.threads import in_threads


@pytest.fixture
def source():
    return emit(traced(lambda grad, value: grad + 2.0))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "kernels"))
    monkeypatch.setattr(cache, "_loaded", {})
    cache.compiler.cache_clear()
    yield tmp_path / "kernels"
    cache.compiler.cache_clear()


def test_a_kernel_is_compiled_once(source, folder, monkeypatch):
    cache.load(source)
    (library,) = folder.iterdir()
    assert library.name == cache.file_name(cache.key_of(source))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    monkeypatch.setattr(cache, "_loaded", {})
    monkeypatch.setattr(cache, "compile_library", None)
    cache.load(source)


def test_threads_that_compile_at_once(source, folder):
    in_threads(lambda: cache.load(source), 4)
    assert [each.name for each in folder.iterdir()] == [cache.file_name(cache.key_of(source))]


def test_a_folder_that_others_may_write_to(source, folder):
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    with pytest.raises(cache.NoCompilerError, match="other users may write to it"):
        cache.load(source)


def test_a_folder_that_is_a_link(source, folder, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(cache.NoCompilerError, match="is a link"):
        cache.load(source)


def test_windows(source, folder, monkeypatch):
    monkeypatch.delattr(cache.os, "geteuid")
    with pytest.raises(cache.NoCompilerError, match="run on Linux and macOS only"):
        cache.load(source)


def test_a_kernel_that_others_may_write_to(source, folder, monkeypatch):
    cache.load(source)
    monkeypatch.setattr(cache, "_loaded", {})
    (library,) = folder.iterdir()
    library.chmod(0o722)
    with pytest.raises(cache.NoCompilerError, match="other users may write to it"):
        cache.load(source)


def test_a_corrupt_kernel(source, folder):
    path = cache.folder() / cache.file_name(cache.key_of(source))
    path.write_bytes(b"this is no library")
    path.chmod(0o700)
    with pytest.raises(cache.NoCompilerError, match="cannot be loaded"):
        cache.load(source)


@pytest.mark.parametrize("variable, compile_", [("CC", "load"), ("CXX", "build")])
def test_no_compiler(variable, compile_, source, folder, monkeypatch):
    monkeypatch.setenv(variable, "no-such-compiler")
    with pytest.raises(cache.NoCompilerError, match="'no-such-compiler' is not on PATH"):
        cache.load(source) if compile_ == "load" else tensorflow_operations.build()
    assert not list(folder.iterdir())


@pytest.mark.parametrize("variable, compile_", [("CC", "load"), ("CXX", "build")])
def test_a_compiler_that_fails(variable, compile_, source, folder, tmp_path, monkeypatch):
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho out of order\nexit 3\n")
    compiler.chmod(0o700)
    monkeypatch.setenv(variable, str(compiler))
    with pytest.raises(cache.NoCompilerError, match="out of order"):
        cache.load(source) if compile_ == "load" else tensorflow_operations.build()
    assert not list(folder.iterdir())


@pytest.mark.parametrize("variable, compile_", [("CC", "load"), ("CXX", "build")])
def test_a_compiler_with_a_launcher_and_flags(
    variable, compile_, source, folder, tmp_path, monkeypatch
):
    launcher = tmp_path / "a launcher"
    launcher.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/calls"\nexec "$@"\n')
    launcher.chmod(0o700)
    # Compiling an operations library would take long.
    default = {"CC": "cc", "CXX": "false"}[variable]
    monkeypatch.setenv(variable, f"'{launcher}' {default} -DA_FLAG=1")
    if compile_ == "load":
        cache.load(source)
    else:
        with pytest.raises(cache.NoCompilerError, match="cannot compile"):
            tensorflow_operations.build()
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls and all(each.startswith(f"{default} -DA_FLAG=1 ") for each in calls)


@pytest.mark.parametrize(
    "command, message", [("cc -Ofast", "-Ofast changes"), ("cc '", "is not a")]
)
def test_a_compiler_that_is_refused(command, message, source, folder, monkeypatch):
    monkeypatch.setenv("CC", command)
    with pytest.raises(cache.NoCompilerError, match=message):
        cache.load(source)


def test_a_folder_that_is_relative(source, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(cache.FOLDER_VARIABLE, "relative")
    key, library = cache.load(source)
    assert library._name == str(tmp_path / "relative" / cache.file_name(key))
    monkeypatch.chdir("/")
    assert cache.folder() == tmp_path / "relative"


def test_flags_of_the_compiler_do_not_change_results(folder, monkeypatch):
    monkeypatch.setenv("CC", "cc -freciprocal-math -ffinite-math-only -fassociative-math")
    program = traced(lambda grad, value: tf.where(tf.equal(grad, grad), grad / 7.0, value / 3.0))
    gradient = np.array([1.0, 2.0, 5.0, np.nan, 11.0], np.float32)
    value = np.linspace(1, 2, 5, dtype=np.float32)
    seventh, third = gradient / np.float32(7), value / np.float32(3)
    expected = value - np.where(gradient == gradient, seventh, third)
    standalone.update(compiled_kernels.compiled(program), value, gradient, {}, {})
    np.testing.assert_array_equal(value, expected)


def test_loops_with_choices_are_vectorized(folder, tmp_path):
    """Without vectors, DiffGrad takes 8 times as long. Some flags undo earlier flags."""
    command = cache.compiler()
    version = subprocess.run([command[0], "-v"], stderr=subprocess.PIPE, check=False).stderr
    if b"gcc version" not in version or platform.machine() != "x86_64":
        pytest.skip("The options and messages are those of gcc for x86-64.")
    (tmp_path / "rule.c").write_text(emit(traced(lambda grad, value: tf.exp(-tf.abs(grad)))))
    command = [*command, f"-I{cache.SOURCES}", "-fopt-info-vec-missed", "-o", "rule.so", "rule.c"]
    done = subprocess.run(command, cwd=str(tmp_path), stderr=subprocess.PIPE, check=True)
    assert b"missed: " in done.stderr  # gcc always reports something
    assert b"control flow in loop" not in done.stderr


def test_machines_of_two_types_share_a_folder(source, folder, monkeypatch):
    key, _ = cache.load(source)
    with monkeypatch.context() as other:
        other.setattr(cache.platform, "machine", lambda: "aarch64")
        assert not (folder / cache.file_name(key)).exists()
        (folder / cache.file_name(key)).write_text("a library of another machine")
    monkeypatch.setattr(cache, "_loaded", {})
    assert cache.load(source)[0] == key


def test_a_folder_that_cannot_be_created(source, folder):
    folder.write_text("a file in place of the folder")
    with pytest.raises(cache.NoCompilerError, match="cannot be created"):
        cache.load(source)


def test_the_operations_library_depends_on_tensorflow(folder):
    assert tensorflow_operations.path().name.startswith(f"operations-{tf.__version__}-")


@pytest.mark.parametrize("target, has_clones", [("-D__x86_64__=1", True), ("-U__x86_64__", False)])
def test_only_kernels_for_x86_64_have_clones(target, has_clones):
    """The compiler's target decides: compilers for others may accept target_clones, too."""
    *flags, clones = cache.with_flags(["cc", target])
    assert flags == ["cc", target, *cache.FLAGS]
    assert clones.startswith("-DVECTORIZED=")
    assert ("target_clones" in clones) == (has_clones and platform.machine() == "x86_64")


def test_the_file_of_a_kernel_for_another_machine():
    assert cache.file_name("0" * 32, "aarch64") == "0" * 32 + "-aarch64.so"
