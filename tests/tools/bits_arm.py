"""Checks that native kernels compute the same bits on ARM64 as on x86-64 (`make bits-arm`).

python -m tests.tools.bits_arm FOLDER [KERNELS]

The program compiles all kernels of legacy-opt-native for both processors into FOLDER, and runs
tests/native/bits.cc with them; for ARM64, by a cross compiler and the emulator qemu-user. KERNELS
is a folder with all kernels for ARM64, such as an installed legacy-opt-native; then these are run.

As a control, some kernels are also compiled with fused multiply-add. A quarter of them must differ,
or the comparison would prove nothing.
"""

import collections
import concurrent.futures
import importlib.util
import itertools
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from legacy_opt.native.runtime import cache
from tests.support.paths import ROOT

X86, ARM = "x86_64", "aarch64"
# The root of the libraries that Debian's cross compiler links to.
EMULATOR = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
ARM_CXX = "aarch64-linux-gnu-g++"
PROGRAMS = ("aarch64-linux-gnu-gcc", ARM_CXX, EMULATOR[0])
PACKAGES = "gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user"
FUSED = "-ffp-contract=fast"
# With large shapes, threads share an update. An emulator takes long for them, so only each 16th
# kernel runs with them. Each 40th is a control.
LARGE, CONTROLS = 16, 40
THREADS = "3"  # on ARM64; on x86-64 one thread computes


def main(folder, kernels=None):
    """Compares all results.

    Returns:
      0 if all results of ARM64 have the bits of x86-64, and those of at least a quarter of the
      controls do not; otherwise 1.
    """
    if platform.machine() != X86:
        sys.exit("The kernels of x86-64 run without an emulator: use a machine with x86-64.")
    if None in map(shutil.which, PROGRAMS):
        sys.exit(f"Programs are missing. On Debian and Ubuntu: apt install {PACKAGES}")
    build = load_build()
    sources = list(dict.fromkeys(build.sources()))
    home = Path(folder)
    (home / "control").mkdir(mode=0o700, parents=True, exist_ok=True)
    commands = {machine: build.c_compiler(machine) for machine in (X86, ARM)}
    on_x86 = build.compile_kernels(sources, home, commands[X86], X86)
    if kernels:
        on_arm = [Path(kernels, cache.file_name(cache.key_of(each), ARM)) for each in sources]
    else:
        on_arm = build.compile_kernels(sources, home, commands[ARM], ARM)
    fusing = [*commands[ARM], FUSED]
    controls = build.compile_kernels(sources[::CONTROLS], home / "control", fusing, ARM)

    expected, found = {}, {}
    x86, arm = program(home, X86), program(home, ARM)
    for size, step in ("small", 1), ("large", LARGE):
        expected.update(results(x86, size, on_x86[::step]))
        found.update(results(arm, size, on_arm[::step]))
    differ = {case for case in expected if found.get(case) != expected[case]}
    control = results(arm, "small", controls)
    fused = {case.split()[0] for case in control if control[case] != expected[case]}

    print_table(expected, differ)
    print(f"{len(sources)} kernels; {len(differ)} of {len(expected)} results differ.")
    print(f"Control, {FUSED}: {len(fused)} of {len(controls)} kernels differ.")
    return int(bool(differ) or 4 * len(fused) < len(controls))


def load_build():
    """Returns the module native_wheel/build.py. (Its folder must not be on sys.path.)"""
    spec = importlib.util.spec_from_file_location("build", str(ROOT / "native_wheel" / "build.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(home, machine):
    """Compiles tests/native/bits.cc, and returns the command that runs it."""
    compiler = cache.find_compiler("C++", "CXX", "c++") if machine == X86 else [ARM_CXX]
    path = str(home / f"bits-{machine}")
    source = str(ROOT / "tests" / "native" / "bits.cc")
    flags = ["-std=c++17", "-O2", "-w", f"-I{cache.SOURCES}", "-o", path, "-ldl", "-pthread"]
    subprocess.run([*compiler, source, *flags], check=True)
    return [path, "1"] if machine == X86 else [*EMULATOR, path, THREADS]


def results(command, size, kernels):
    """Runs kernels in several processes; returns {kernel and case: hash of the results}."""

    def lines(some):
        done = subprocess.run([*command, size, *map(str, some)], stdout=subprocess.PIPE, check=True)
        return done.stdout.decode().splitlines()

    count = os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        found = pool.map(lines, [kernels[i::count] for i in range(count)])
    return dict(line.rsplit(" ", 1) for line in itertools.chain.from_iterable(found))


def print_table(cases, differ):
    """Prints for each kind of case the number of results that were compared, and that differ."""
    kinds = collections.Counter(case.split(" ", 1)[1] for case in cases)
    wrong = collections.Counter(case.split(" ", 1)[1] for case in differ)
    print(f"\n{'update, inputs, shapes':28}{'compared':>10}{'differ':>8}")
    for kind, count in sorted(kinds.items()):
        print(f"{kind:28}{count:>10}{wrong[kind]:>8}")
    print()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
