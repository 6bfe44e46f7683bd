"""Tests of `legacy-opt doctor` and `diagnose`, which report facts, problems and fixes."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy
import pytest
import tensorflow as tf

import lanes
import legacy_opt
from legacy_opt import versions
from legacy_opt.compat import cli
from legacy_opt.compat.cli import diagnosis, doctor_command
from tests.support.paths import ROOT


def command(*words, **environment):
    """Runs legacy-opt in a new process; returns (exit code, stdout, stderr)."""
    environment.setdefault("PYTHONPATH", str(ROOT))
    inherited = {name: at for name, at in os.environ.items() if not name.startswith("TF_")}
    done = subprocess.run(
        [sys.executable, "-m", "legacy_opt"] + list(words),
        env=dict(inherited, **environment),
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


def facts(**changes):
    """Returns facts about a healthy installation of TensorFlow 2.15, updated with `changes`."""
    healthy = {
        "packages": {"tensorflow-cpu": "2.15.1", "keras": "2.15.0", "numpy": "1.26.4"},
        "tensorflow": {"version": "2.15.1", "error": None, "graph_writer": None},
        "keras": {
            "version": "2.15.0",
            "generation": 2,
            "home": "keras",
            "backend": "tensorflow",
            "error": None,
            "TF_USE_LEGACY_KERAS": None,
            "KERAS_BACKEND": None,
        },
        "to_keras": {"auto": "optimizer_v2", "optimizer_v2": None, "keras3": "ImportError: none"},
        "kernels": {"Adagrad": list(diagnosis.FORMS)},
        "native": {"kernels": 3},
    }
    for part, change in changes.items():
        healthy[part] = change if part in ("kernels", "packages") else dict(healthy[part], **change)
    return healthy


def only_problem(**changes):
    (problem,) = diagnosis._problems(facts(**changes))
    return problem


@pytest.fixture(scope="module", autouse=True)
def empty_folder_of_kernels(tmp_path_factory):
    """Makes `doctor` look for kernels in an empty folder, not in the folder of other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEGACY_OPT_KERNELS", str(tmp_path_factory.mktemp("kernels")))
        yield


@pytest.fixture(scope="module")
def diagnosed():
    """Returns the facts that `doctor --json` prints in a new process."""
    code, output, errors = command("doctor", "--json")
    assert (code, errors) == (0, "")
    return json.loads(output)


def test_text_names_the_versions(diagnosed):
    output = "\n".join(doctor_command._lines(diagnosed))
    assert tf.__version__ in output
    assert numpy.__version__ in output
    assert "AdagradV2" in output
    assert ("eager off" in output) == tf.__version__.startswith("1.")


def test_json_contains_the_facts(diagnosed):
    assert diagnosed["legacy_opt"]["version"] == legacy_opt.__version__
    assert diagnosed["python"]["version"] == sys.version.split()[0]
    assert diagnosed["packages"]["numpy"] == numpy.__version__
    names = "tensorflow", "tensorflow-cpu", "tf-nightly"
    wheels = [diagnosed["packages"].get(name) for name in names]
    # pip and TensorFlow write 2.22.0rc0 and 2.23.0.dev20261026 differently.
    assert tf.__version__.replace("-rc", "rc").replace("-dev", ".dev") in wheels
    assert diagnosed["tensorflow"]["version"] == tf.__version__
    assert diagnosed["tensorflow"]["contrib"] == hasattr(tf, "contrib")
    assert diagnosed["tensorflow"]["estimator"] == versions.estimator_problem()
    assert diagnosed["keras"]["error"] is None
    assert diagnosed["keras"]["generation"] == (3 if hasattr(tf.keras, "ops") else 2)
    assert diagnosed["kernels"]["Adagrad"] == list(diagnosis.FORMS)
    assert diagnosed["kernels"]["Adam"] == ["ref dense", "resource dense"]


def test_diagnose_is_public_and_is_what_json_prints(capsys):
    found = legacy_opt.compat.diagnose()
    cli.main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out) == found


def test_reported_kernels_exist():
    prefix = {"ref dense": "", "ref sparse": "Sparse"}
    prefix.update({"resource dense": "Resource", "resource sparse": "ResourceSparse"})
    for name, forms in diagnosis._kernels().items():
        for form in diagnosis.FORMS:
            assert hasattr(tf.raw_ops, prefix[form] + "Apply" + name) == (form in forms)


@pytest.mark.parametrize(
    "message, fix",
    [
        ("TypeError('Descriptors cannot be created directly.')", 'pip install "protobuf<3.21"'),
        ("RuntimeError('the disk is on fire')", None),
    ],
)
def test_a_broken_tensorflow_is_reported(tmp_path, message, fix):
    (tmp_path / "tensorflow.py").write_text("raise " + message)
    code, output, errors = command("doctor", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert (code, errors) == (1, "")
    assert "ERROR: TensorFlow cannot be imported: " in output
    assert message.split("'")[1] in output
    assert (f"fix: {fix}" in output) if fix else ("fix: pip install" not in output)


def test_output_of_a_failing_import_is_not_printed(tmp_path):
    noise = "import os\nos.write(2, b'noise')\nraise ImportError('no')"
    (tmp_path / "tensorflow.py").write_text(noise)
    _, _, errors = command("doctor", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert errors == ""


def test_libraries_that_run_recorded_rules(diagnosed):
    """The versions that are tested are those of `make leave`."""
    tested = {name: f"{name}=={version}" for name, version in doctor_command._TESTED.items()}
    assert tested == {"torch": lanes.TORCH, "jax": lanes.JAX}
    for name, error in diagnosed["recorded"].items():
        expected = f"ModuleNotFoundError: No module named '{name}'"
        assert error == (None if name in diagnosed["packages"] else expected)
    packages = {"torch": "2.9.0", "jax": "0.7.0"}
    changed = dict(diagnosed, packages=packages, recorded={"torch": None, "jax": "ImportError: x"})
    lines = list(doctor_command._lines(changed))
    assert "torch         2.9.0, tested with 2.13.0: recorded rules run" in lines
    assert "jax           0.7.0, tested with 0.12.0.1: ImportError: x" in lines
    lines = list(doctor_command._lines(dict(changed, packages={})))
    assert "torch         not installed" in lines


def test_missing_estimators_show_in_the_last_line(diagnosed):
    for missing, end in ("No package.", "only tf.estimator needs them."), (None, "problems found."):
        tensorflow = dict(diagnosed["tensorflow"], estimator=missing)
        lines = list(doctor_command._lines(dict(diagnosed, tensorflow=tensorflow, problems=[])))
        assert lines[-1].startswith("No problems found.") and lines[-1].endswith(end)


def test_healthy_has_no_problem():
    assert list(diagnosis._problems(facts())) == []


def test_missing_tensorflow():
    nothing = {"version": None, "error": "ModuleNotFoundError: No module named 'tensorflow'"}
    changed = dict(facts(tensorflow=nothing, packages={}, kernels={}), keras=None)
    (problem,) = diagnosis._problems(changed)
    assert problem["level"] == "error"
    assert problem["fix"].startswith("pip install tensorflow-cpu")


def test_numpy_2_under_an_old_tensorflow():
    broken = {"version": None, "error": "AttributeError: _ARRAY_API not found"}
    packages = {"tensorflow-cpu": "2.10.1", "numpy": "2.0.1"}
    changed = dict(facts(tensorflow=broken, packages=packages, kernels={}), keras=None)
    (problem,) = diagnosis._problems(changed)
    assert (problem["level"], problem["fix"]) == ("error", 'pip install "numpy<2"')


def test_a_protobuf_with_which_no_graph_is_written(monkeypatch):
    def write_graph(*_, **__):
        raise TypeError("MessageToString() got an unexpected keyword argument 'float_format'")

    monkeypatch.setattr(tf.io, "write_graph", write_graph)
    problem = only_problem(tensorflow={"graph_writer": diagnosis._error_of(diagnosis._write_graph)})
    assert (problem["level"], problem["fix"]) == ("error", 'pip install "protobuf<7"')
    assert "float_format" in problem["text"]


def test_the_kernels_of_another_version():
    here = legacy_opt.__version__
    packages = {"tensorflow-cpu": "2.15.1", "legacy-opt-native": "0.0.9"}
    problem = only_problem(packages=packages)
    assert "0.0.9 has the kernels of legacy-opt 0.0.9, not of " + here in problem["text"]
    assert problem["fix"] == "pip install legacy-opt-native==" + here


def test_a_folder_of_kernels_that_cannot_be_used(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LEGACY_OPT_KERNELS", str(tmp_path / "file"))
    native = diagnosis._native()
    problem = only_problem(native=native)
    assert "cannot be created" in problem["text"]
    assert "Set LEGACY_OPT_KERNELS to another folder" in problem["text"]
    assert not [line for line in doctor_command._native_texts(native) if "compiled kernels" in line]


def test_two_wheels():
    problem = only_problem(packages={"tensorflow": "2.15.1", "tensorflow-cpu": "2.15.1"})
    assert problem["level"] == "warning"
    assert "tensorflow==2.15.1 and tensorflow-cpu==2.15.1" in problem["text"]
    assert "pip uninstall -y tensorflow tensorflow-cpu" in problem["fix"]


def test_no_kernels():
    assert only_problem(kernels={})["level"] == "error"


@pytest.mark.parametrize("wheel", ["tensorflow", "tensorflow-cpu"])
def test_with_keras_3_the_command_that_installs_tf_keras_is_shown(wheel):
    changed = facts(
        tensorflow={"version": "2.18.0"},
        keras={"generation": 3},
        packages={wheel: "2.18.0"},
        to_keras={"auto": "keras3", "optimizer_v2": "ImportError: no tf_keras", "keras3": None},
    )
    assert list(diagnosis._problems(changed)) == []
    assert list(doctor_command._to_keras_texts(changed)) == [
        "api='keras3', the default",
        "api='optimizer_v2' after pip install --no-deps \"tf-keras==2.18.*\"",
    ]


def test_a_tensorflow_that_is_not_released_may_have_no_tf_keras_yet():
    command = diagnosis.pip_tf_keras({"tensorflow": {"version": "2.22.0-rc0"}})
    assert command == (
        'pip install --no-deps "tf-keras==2.22.*"'
        "  # tf-keras 2.22 is released after TensorFlow 2.22"
    )


def test_a_nightly_tensorflow_has_a_nightly_tf_keras():
    command = diagnosis.pip_tf_keras({"tensorflow": {"version": "2.23.0-dev20261101"}})
    assert command == 'pip install --no-deps "tf-keras-nightly==2.23.*"'


def test_a_nightly_keras_has_the_name_of_the_released_one(monkeypatch):
    names = "tf_keras-nightly", "keras-nightly", "tf_nightly"
    installed = [SimpleNamespace(metadata={"Name": name}, version="2.23.0") for name in names]
    metadata = SimpleNamespace(distributions=lambda: installed)
    monkeypatch.setattr(diagnosis, "metadata", metadata)
    assert set(diagnosis._packages()) == {"keras", "tf-keras", "tf-nightly"}


def test_keras_3_too_old_for_the_bridge():
    changed = {"auto": "keras3", "keras3": "ImportError: Keras 3.0.5 is too old."}
    problem = only_problem(keras={"generation": 3}, to_keras=changed)
    assert problem["level"] == "warning"
    assert "to_keras cannot make optimizers for tf.keras" in problem["text"]
    assert "Keras 3.0.5 is too old" in problem["text"]
    assert problem["fix"] == "pip install -U keras"


def test_the_facts_on_to_keras_are_true(diagnosed):
    errors = diagnosed["to_keras"]
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    auto = legacy_opt.compat.to_keras(optimizer)
    for api in ("optimizer_v2", "keras3"):
        if errors[api] is None:
            same = type(legacy_opt.compat.to_keras(optimizer, api=api)) is type(auto)
            assert same == (errors["auto"] == api)
        else:
            with pytest.raises(ImportError) as raised:
                legacy_opt.compat.to_keras(optimizer, api=api)
            assert errors[api] == f"ImportError: {raised.value}"


def test_legacy_keras_is_requested_but_missing():
    keras = {"version": None, "error": "ImportError: tf_keras", "TF_USE_LEGACY_KERAS": "1"}
    problem = only_problem(keras=keras)
    assert "tf.keras cannot be imported" in problem["text"]
    assert problem["fix"] == 'pip install --no-deps "tf-keras==2.15.*"'


def test_tf_keras_of_another_version():
    packages = {"tensorflow": "2.15.1", "tf-keras": "2.18.0"}
    problem = only_problem(packages=packages)
    assert "tf-keras 2.18.0 does not work with TensorFlow 2.15." in problem["text"]


def test_keras_on_another_backend():
    changed = {"auto": "keras3", "keras3": "ImportError: Keras runs on jax here."}
    problem = only_problem(keras={"generation": 3, "backend": "jax"}, to_keras=changed)
    assert problem["fix"] == "export KERAS_BACKEND=tensorflow"


def test_keras_on_a_backend_that_is_missing():
    keras = {"version": None, "error": "ImportError: Keras", "KERAS_BACKEND": "jax"}
    problem = only_problem(keras=keras, to_keras={"auto": None})
    assert "tf.keras cannot be imported" in problem["text"]
    assert problem["fix"] == "export KERAS_BACKEND=tensorflow"


def test_every_problem_shows_in_the_text():
    changed = dict(legacy_opt.compat.diagnose(), problems=[diagnosis._problem("error", "T", "F")])
    assert "\n".join(doctor_command._lines(changed)).endswith("ERROR: T\n  fix: F")


def test_unknown_command_and_unknown_names(capsys):
    with pytest.raises(SystemExit) as raised:
        cli.main(["nonsense"])
    assert raised.value.code == 2
    assert "nonsense" in capsys.readouterr().err
    with pytest.raises(AttributeError, match="nonsense"):
        legacy_opt.nonsense  # noqa: B018
    with pytest.raises(AttributeError, match="nonsense"):
        legacy_opt.compat.nonsense  # noqa: B018
    with pytest.raises(AttributeError, match="'to_kears'. Did you mean 'to_keras'"):
        legacy_opt.compat.to_kears  # noqa: B018
    assert "diagnose" in dir(legacy_opt.compat)
