"""Trains v1 optimizers with MirroredStrategy on two devices, with and without `to_keras`."""

import pytest
import tensorflow as tf

from tests.support import estimators
from tests.support.processes import programs

# Some checks expect an error if Keras 3 is old. Therefore the tests run with the newest Keras 3 and
# with the oldest Keras 3.
KERAS_3 = pytest.param("keras3", marks=pytest.mark.every_lane)
EVERY_API = pytest.mark.parametrize("api", ["optimizer_v2", KERAS_3])


def run(checks, full, api="optimizer_v2", graph_mode=False):
    """Runs checks of `tests.keras_bridge.mirrored` in a new process."""
    options = ["--full"] * full + ["--keras3"] * (api == "keras3")
    done = programs.run(
        *["-m", "tests.keras_bridge.mirrored", *checks, *options],
        seconds=300,
        environment={"LEGACY_OPT_TEST_GRAPH_MODE": "1"} if graph_mode else {},
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    for check in checks:
        assert f"\n{check} passed\n" in "\n" + done.stdout


@EVERY_API
def test_two_replicas(api, full):
    checks = ["bridge", "refusal", "fit"]
    run(checks + ["v1"] * (api == "optimizer_v2"), full, api)


@estimators.needed
def test_v1_optimizers_in_an_estimator(full):
    run(["estimator", "estimator_averages"], full)


@pytest.mark.full
@EVERY_API
def test_the_rest_with_two_replicas(api, full):
    # The check own_sum sums the gradients over replicas. Keras 3 would sum these gradients again,
    # so the check runs only with Keras 2.
    checks = ["learning_rate", "clipping", "names", "made_outside", "checkpoint"]
    checks += ["fit_unknown_length"]
    run(checks + ["multi", "own_sum"] * (api == "optimizer_v2"), full, api)


@pytest.mark.full
def test_fit_in_graph_mode_keras(full):
    run(["fit"], full, graph_mode=hasattr(tf, "contrib"))
