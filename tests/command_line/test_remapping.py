"""Tests that `legacy-opt run` turns Grappler's remapping off where it ends the process."""

import signal

import pytest
import tensorflow as tf

from legacy_opt import versions
from tests.support.paths import ROOT
from tests.support.processes import programs
from tests.support.processes.command_line import start

v1 = tf.compat.v1
DEFAULT, ON, OFF = range(3)  # of RewriterConfig.Toggle


@pytest.fixture
def created(monkeypatch):
    """Turns remapping off; returns a list of all new Sessions, and a list of what is said."""
    base, sessions, said = v1.Session.__bases__[0], [], []
    original = base.__init__

    def record(self, target="", graph=None, config=None):
        sessions.append(self)
        original(self, target, graph, config)

    monkeypatch.setattr(base, "__init__", record)
    versions.turn_remapping_off(lambda: said.append(1))
    yield sessions, said
    tf.config.optimizer.set_experimental_options({"remapping": None})


def config(toggle):
    made = v1.ConfigProto(log_device_placement=False, inter_op_parallelism_threads=3)
    made.graph_options.rewrite_options.remapping = toggle
    return made


def make_all_kinds(given):
    with tf.Graph().as_default() as graph:
        v1.get_variable("w", initializer=1.0)
        ready = v1.report_uninitialized_variables()
        v1.Session(config=given).close()
        v1.InteractiveSession("", graph, given).close()
        v1.train.MonitoredTrainingSession(config=given).close()
        manager = v1.train.SessionManager(ready_op=ready)
        manager.prepare_session("", init_op=v1.global_variables_initializer(), config=given).close()
    with tf.Graph().as_default() as graph:
        v1.get_variable("w", initializer=1.0)
        with v1.train.Supervisor(graph).managed_session(config=given):
            pass


@pytest.mark.parametrize("toggle, expected", [(None, OFF), (DEFAULT, OFF), (ON, ON), (OFF, OFF)])
def test_sessions_of_all_kinds_run_without_remapping(toggle, expected, created):
    given = None if toggle is None else config(toggle)
    make_all_kinds(given)
    sessions, said = created
    assert len(sessions) == 5 and len(said) == (5 if toggle in (None, DEFAULT) else 0)
    for session in sessions:
        options = session._config.graph_options.rewrite_options
        assert options.remapping == expected
        assert toggle is None or session._config.inter_op_parallelism_threads == 3
    assert given is None or given.graph_options.rewrite_options.remapping == toggle


def test_the_versions_that_crash():
    assert versions.remapping_crashes() == (tf.__version__ in ("2.15.1", "2.16.2"))


if versions.remapping_crashes():  # other versions have nothing to test

    @pytest.mark.every_lane
    def test_a_script_with_layer_normalization_does_not_crash(tmp_path):
        page = (ROOT / "docs" / "old_scripts.md").read_text(encoding="utf-8")
        _, _, program = page.partition("<!-- file: layer_norm.py -->\n```python\n")
        (tmp_path / "layer_norm.py").write_text(program.partition("```")[0])
        plain = programs.run_in_new_python("layer_norm.py", seconds=120, folder=tmp_path)
        # Whether it crashes may depend on the processor, as its kernels do.
        assert plain.returncode in (0, -signal.SIGSEGV), plain.stderr
        process = start("run", "layer_norm.py", cwd=str(tmp_path))
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0 and output.startswith("[[-1.")
        assert errors.count("Sessions run without Grappler's remapping") == 1
