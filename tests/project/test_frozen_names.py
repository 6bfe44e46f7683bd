"""Compares the names that files of users contain with tests/data/frozen_names.json."""

import json

import pytest

from legacy_opt import versions
from tests.tools import frozen_names


@pytest.mark.every_lane
@pytest.mark.filterwarnings("ignore::legacy_opt.GlobalStepWarning")
def test_names_in_files_of_users_stay():
    frozen = frozen_names.PAGE.read_text(encoding="utf-8")
    assert frozen_names.text(frozen_names.names()) == frozen, (
        "Files of users contain these names (docs/compatibility.md). To add a name: "
        "python -m tests.tools.frozen_names"
    )


def test_the_name_of_the_bridge_in_saved_models():
    frozen = json.loads(frozen_names.PAGE.read_text(encoding="utf-8"))["keras"]
    if versions.keras_facts()["generation"] == 3:
        from legacy_opt.compat.in_keras.keras_bridge.keras3.optimizer import BridgedOptimizer

        assert versions.keras_3().saving.get_registered_name(BridgedOptimizer) == frozen
        return
    from legacy_opt.compat.in_keras.keras_bridge.keras2.optimizer import BridgedOptimizer

    utils = versions.keras_2().utils
    assert utils.get_custom_objects()[frozen.split(">")[1]] is BridgedOptimizer
    if hasattr(utils, "get_registered_name"):  # TensorFlow 1.15 knows classes by their own names
        assert utils.get_registered_name(BridgedOptimizer) == frozen
