"""Tests examples_graph_mode/compare_optimizers.py, which compares optimizers on flight data."""

from tests.examples import flights_modules  # noqa: F401 - must be imported first

# isort: split
import numpy as np
import pandas as pd
import pytest

import compare_optimizers
from flights import data
from flights.model import Settings, build_optimizer
from flights.optimizers import CATALOGUE
from tests.support.cases import public_optimizers


@pytest.fixture(scope="module")
def flights():
    return data.load_flights()


@pytest.fixture
def loaded(flights, monkeypatch):
    monkeypatch.setattr(compare_optimizers, "load_flights", lambda: flights)


def test_program_knows_all_optimizers_of_the_package():
    ours = {optimizer.__name__.replace("Optimizer", "") for optimizer in public_optimizers()}
    assert set(CATALOGUE) == ours | {"AdagradW", "Adagrad", "Adam", "Ftrl", "SGD"}, (
        "add an entry to examples_graph_mode/flights/optimizers.py"
    )
    stock = {name for name, choice in CATALOGUE.items() if choice.stock}
    assert stock == {"Adagrad", "Adam", "Ftrl", "SGD"}


@pytest.mark.full
def test_program_trains_all_optimizers_of_the_package(loaded, tmp_path, capsys):
    compare_optimizers.main(["--steps", "20", "--out", str(tmp_path)])
    table = pd.read_csv(tmp_path / "compare.csv", index_col="optimizer")
    assert set(table.index) == set(CATALOGUE)
    stock = {name for name, choice in CATALOGUE.items() if choice.stock}
    assert set(table.index[table["tensorflows_own"]]) == stock
    assert list(table.index[table["learning_rate"].isna()]) == ["COCOB"]  # has none
    assert np.isfinite(table.drop("COCOB").astype(float)).all().all()
    assert np.isfinite(table.drop(columns="learning_rate").astype(float)).all().all()
    assert table["log_loss"].is_monotonic_increasing
    assert (table["milliseconds_per_step"] > 0).all()
    printed, progress = capsys.readouterr()
    for name in CATALOGUE:
        assert f"\n{name} " in printed and name in progress
    assert [path.name for path in tmp_path.iterdir()] == ["compare.csv"]

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


def test_diverged_optimizers_are_named_after_the_file_is_written(loaded, tmp_path, capsys):
    arguments = ["--steps", "20", "--out", str(tmp_path), "--optimizers", "SGD", "Adagrad"]
    with pytest.raises(SystemExit, match="SGD diverged; give a lower --learning-rate"):
        compare_optimizers.main([*arguments, "--learning-rate", "SGD=1e30"])
    table = pd.read_csv(tmp_path / "compare.csv", index_col="optimizer")
    assert list(table.index) == ["Adagrad", "SGD"] and np.isnan(table["log_loss"]["SGD"])


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


def test_the_year_is_scored_by_what_the_tuning_has_not_seen(flights):
    half, name = compare_optimizers.scored(flights)
    assert name == "July-December" and set(flights.month[half]) == set(range(7, 13))
    part, name = compare_optimizers.scored(flights.first(6400))
    assert part.all() and name == "the first 6,400 flights"
