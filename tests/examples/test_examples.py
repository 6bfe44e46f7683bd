"""Tests of the examples on flights: data, metrics, training and programs."""

from tests.examples import flights_modules  # noqa: F401 - must be imported first

# isort: split
import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
import tensorflow.compat.v1 as v1

import estimator_flights
import flights_session
import wide_and_deep_multi_optimizer
from flights import data, report
from flights.model import OPTIMIZERS, Settings, loss_per_flight
from flights.training import CheckpointedRun, Trainer, first_difference
from legacy_opt import versions
from tests.support import estimators


@pytest.fixture(scope="module")
def flights():
    return data.load_flights()


@pytest.fixture(scope="module")
def tables():
    directory = data.data_directory()
    read = {"usecols": data.FLIGHT_COLUMNS, "nrows": 3000}
    return (
        pd.read_csv(directory / "flights.csv.zip", **read),
        pd.read_csv(directory / "weather.csv"),
    )


@pytest.fixture(scope="module")
def thin(flights):
    """Returns every 200th flight of the year."""
    return flights._slice(slice(None, None, 200))


@pytest.fixture
def few(flights):
    return flights.first(30 * 64 - 10)


def settings(**changes):
    return {
        name: Settings(name, rate, decay_step=7, **changes)
        for name, rate in zip(OPTIMIZERS, (0.3, 0.3, 0.2))
    }


# --- data


def test_all_flights_in_time_order(flights):
    assert flights.size == 327346
    assert flights.late.mean() == pytest.approx(0.237, abs=0.0005)
    assert (np.diff(flights.time) >= np.timedelta64(0, "ns")).all()
    assert set(flights.month) == set(range(1, 13))
    assert flights.vocabulary_size == 10741
    assert flights.ids.min() == 0 and flights.ids.max() == 10740
    assert np.isfinite(flights.dense).all() and np.abs(flights.dense).max() <= data.CLIP


def test_features_do_not_depend_on_the_outcome(tables):
    rows, weather = tables
    other = rows.assign(arr_delay=-rows["arr_delay"])
    one, two = data.encode(rows, weather), data.encode(other, weather)
    assert not np.array_equal(one.late, two.late)
    np.testing.assert_array_equal(one.ids, two.ids)
    np.testing.assert_array_equal(one.dense, two.dense)
    known_afterwards = {"dep_delay", "dep_time", "arr_time", "air_time"}
    assert not known_afterwards & set(data.FLIGHT_COLUMNS)


def test_fields_do_not_share_rows(flights):
    lowest, highest = flights.ids.min(axis=0), flights.ids.max(axis=0)
    np.testing.assert_array_equal(lowest[1:], highest[:-1] + 1)


def test_late_means_more_than_15_minutes(tables):
    rows, weather = tables
    rows = rows.head(3).assign(arr_delay=[15.0, 16.0, np.nan], sched_dep_time=[500, 600, 700])
    np.testing.assert_array_equal(data.encode(rows, weather).late, [0, 1])


def test_weather_is_of_origin_and_hour_and_gaps_are_ordinary(tables):
    rows, weather = tables
    row = rows.head(1)
    place = row[["origin", "year", "month", "day", "hour"]]
    names = list(data.WEATHER)
    here = place.assign(**dict(zip(names, [75.0, 40.0, 60.0, 22.0, np.nan, 0.0, np.nan, 4.0])))
    later = here.assign(hour=here["hour"] + 1, temp=0.0)
    encoded = data.encode_dense(row, pd.concat([later, here]))[0]
    # The wind speed replaces the missing gust, and a typical value replaces the missing pressure.
    expected = [1, 0, 0, 2, 1, 0, 0, -2]
    np.testing.assert_allclose(encoded[: len(names)], expected)
    nothing = data.encode_dense(row, later)[0]
    np.testing.assert_array_equal(nothing[: len(names)], np.zeros(len(names)))
    storm = data.encode_dense(row, here.assign(wind_speed=1048.0))[0]
    assert storm[names.index("wind_speed")] == data.CLIP


# --- metrics


def test_score_against_hand_computed():
    late, predictions = np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.8, 0.4, 0.3, 0.1])
    expected = -np.mean(np.log([0.8, 0.6, 0.3, 0.9]))
    loss, auc = report.score(late, predictions)
    assert loss == pytest.approx(expected, rel=1e-12)
    assert auc == 0.75  # one of the four (late, on time) pairs is in the wrong order
    each = loss_per_flight(late, predictions)
    assert each.mean() == pytest.approx(expected, rel=1e-12)
    assert np.isnan(report.score(np.ones(2), predictions[:2])[1])
    assert np.isnan(report.score(late, np.full(4, np.nan))).all()


def test_the_table_has_each_month_and_period(thin):
    good, bad = np.where(thin.late > 0, 0.9, 0.1), np.where(thin.late > 0, 0.8, 0.2)
    predictions = {"one": np.where(thin.month == 3, bad, good), "two": bad}
    table = report.metrics_table(thin, predictions)
    scores = table.set_index(["period", "optimizer"])
    assert scores.loc[("Mar", "one"), "log_loss"] == pytest.approx(-np.log(0.8))
    assert scores.loc[("Jul-Dec", "one"), "log_loss"] == pytest.approx(-np.log(0.9))
    assert scores.loc[("year", "two"), "log_loss"] == pytest.approx(-np.log(0.8))
    assert scores.loc[("year", "two"), "flights"] == thin.size
    lines = report.format_table(table).splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["Jan-Jun", "Jul-Dec", "year"]
    assert lines[-1].split()[2] == "0.2231"  # the log-loss of "two"


# --- training


def test_no_prediction_sees_its_own_label(few):
    late = few.late.copy()
    late[640:704] = 1 - late[640:704]
    other = dataclasses.replace(few, late=late)
    one, two = (Trainer(each, settings(), 64).train_once() for each in (few, other))
    np.testing.assert_array_equal(one[:, :704], two[:, :704])
    assert (one[:, 704:] != two[:, 704:]).any(axis=1).all()


def test_towers_do_not_influence_each_other(few):
    together = Trainer(few, settings(), 64).train_once()
    for number, (name, one) in enumerate(settings().items()):
        alone = Trainer(few, {name: one}, 64).train_once()
        np.testing.assert_array_equal(alone[0], together[number])


def test_decay_that_never_fires_is_adagrad(few):
    pair = {
        "Adagrad": Settings("Adagrad", 0.3),
        "AdagradDecay": Settings("AdagradDecay", 0.3, decay_step=100000),
        "often": Settings("AdagradDecay", 0.3, decay_step=7),
    }
    adagrad, never, often = Trainer(few, pair, 64).train_once()
    np.testing.assert_array_equal(adagrad, never)
    assert (adagrad != often).any()


def test_resumed_run_is_bit_equal(few, tmp_path, capsys):
    whole, variables = CheckpointedRun(Trainer(few, settings(), 64), str(tmp_path / "a"), 10).run(
        30
    )
    directory = str(tmp_path / "b")
    for stop, resume in [(17, False), (24, True), (30, True)]:
        run = CheckpointedRun(Trainer(few, settings(), 64), directory, 10)
        resumed, resumed_variables = run.run(stop, resume=resume, save_at_end=False)
        assert resumed.shape[1] == min(stop * 64, few.size)
    printed = capsys.readouterr().out
    assert "step 10." in printed and "step 20." in printed
    np.testing.assert_array_equal(resumed, whole)
    assert sorted(variables) == sorted(resumed_variables) and len(variables) > 30
    for name in variables:
        np.testing.assert_array_equal(variables[name], resumed_variables[name], err_msg=name)
    assert variables["AdagradDecay/global_step"] == 30


def test_resume_with_other_arguments_is_refused(few, tmp_path):
    CheckpointedRun(Trainer(few, settings(), 64), str(tmp_path), 10).run(2)
    other = CheckpointedRun(Trainer(few, settings(seed=1), 64), str(tmp_path), 10)
    with pytest.raises(ValueError, match="--resume.*SGD seed was 0 and is 1"):
        other.run(4, resume=True)


def test_a_new_run_deletes_older_checkpoints(few, tmp_path):
    trainer = Trainer(few, settings(), 64)
    CheckpointedRun(trainer, str(tmp_path), 2).run(8)
    assert len(list(tmp_path.glob("*.index"))) == 3
    CheckpointedRun(trainer, str(tmp_path), 10).run(3, save_at_end=False)
    assert not list(tmp_path.glob("model.ckpt*")) and not (tmp_path / "checkpoint").exists()


def test_the_first_difference_is_described():
    one = {"table": np.float32([1, 2]), "step": np.int64(3)}
    assert first_difference(one, dict(one)) is None
    other = dict(one, table=np.float32([1, np.nextafter(np.float32(2), np.float32(3))]))
    assert first_difference(one, other) == "table, in 1 of 2 numbers, by up to 2.38e-07"
    assert first_difference(one, {"step": 3}) == "table, which only one of the two has"
    other = dict(one, table=np.float32([1]))
    assert first_difference(one, other) == "table, with the shapes (2,) and (1,)"


# --- programs


def test_session_program_and_resume(few, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(flights_session, "load_flights", lambda: few)
    common = ["--out", str(tmp_path), "--decay-step", "5"]
    flights_session.main([*common, "--steps", "8", "--verify-resume"])
    out = capsys.readouterr().out
    assert "Stopped at step 3, resumed from step 2: " in out and "bit for bit" in out
    flights_session.main([*common, "--resume"])
    resumed = capsys.readouterr().out
    assert "step 8." in resumed
    table = pd.read_csv(tmp_path / "metrics.csv")
    flights_session.main(common)
    whole = capsys.readouterr().out
    pd.testing.assert_frame_equal(table, pd.read_csv(tmp_path / "metrics.csv"))
    start = whole.index("log_loss")
    assert whole[start : whole.index("Wrote")] in resumed
    assert set(table["optimizer"]) == set(OPTIMIZERS) and np.isfinite(table["log_loss"]).all()
    assert (tmp_path / "running_log_loss.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_verify_resume_notices_a_difference(few, tmp_path, monkeypatch):
    monkeypatch.setattr(flights_session, "load_flights", lambda: few)
    restore = CheckpointedRun._restore

    def wrong_position(run, session):
        start, predictions = restore(run, session)
        return start + 1, predictions

    monkeypatch.setattr(CheckpointedRun, "_restore", wrong_position)
    with pytest.raises(SystemExit, match="differs from uninterrupted run"):
        flights_session.main(["--out", str(tmp_path), "--verify-resume"])


def test_verify_resume_needs_steps_to_lose(few, tmp_path, monkeypatch):
    monkeypatch.setattr(flights_session, "load_flights", lambda: few)
    with pytest.raises(SystemExit, match="5 steps are too few to interrupt; use 6 or more"):
        flights_session.main(["--out", str(tmp_path), "--steps", "5", "--verify-resume"])


def test_diverged_run_fails(few, tmp_path, monkeypatch):
    monkeypatch.setattr(flights_session, "load_flights", lambda: few)
    arguments = ["--out", str(tmp_path), "--optimizers", "SGD", "--learning-rate-sgd", "1e30"]
    with pytest.raises(SystemExit, match="SGD diverged"):
        flights_session.main(arguments)


def test_help_says_that_the_default_decay_step_never_fires(capsys):
    with pytest.raises(SystemExit) as stop:
        flights_session.main(["--help"])
    assert stop.value.code == 0
    assert "never" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--decay-rate", "1"], ["--steps", "0"]])
def test_impossible_arguments_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        flights_session.main(arguments)
    assert stop.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_wide_and_deep_program(few, tmp_path, capsys, monkeypatch):
    example = wide_and_deep_multi_optimizer
    monkeypatch.setattr(example, "load_flights", lambda: few)
    arguments = ["--out", str(tmp_path), "--steps"]
    example.main([*arguments, "5"])
    printed = capsys.readouterr().out
    for row in (
        "FtrlOptimizer, 86024 bytes of state: bias wide wide_dense\n",
        "AdagradDecayOptimizer, 1031136 bytes of state: embeddings\n",
        "AdamOptimizer, 25864 bytes of state: hidden_weights output_weights hidden_bias\n",
        "AdagradOptimizer, 399652 bytes of state: ",
        r"step 3\.\n(.*\n)*After 5 steps:",
    ):
        assert re.search(row, printed), row
    losses = example.main([*arguments, "12", "--resume"])
    assert "step 5." in capsys.readouterr().out
    seen = few.first(12 * 64)
    uninterrupted = example.new_trainer(seen, 64).train_once()
    expected = [report.score(seen.late, each)[0] for each in uninterrupted]
    assert losses == dict(zip(["MultiOptimizer", "Adagrad"], expected))


@estimators.needed
def test_estimator_resumes_month_by_month(thin, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(estimator_flights, "load_flights", lambda: thin)
    common = ["--out", str(tmp_path), "--batch-size", "16", "--decay-step", "5", "--months"]
    table = estimator_flights.main([*common, "2", "3"])
    months = [int((thin.month < month).sum()) // 16 for month in (2, 3)]
    assert list(table["from step"]) == [0, months[0]] and list(table["to step"]) == months
    assert np.isfinite(table[["log-loss", "AUC"]]).all().all()

    again = estimator_flights.main([*common, "2", "3"])
    shown = capsys.readouterr()
    assert "Feb: skipped" in shown.out
    assert "before Mar: 100%" in shown.err and f" {months[1]}/{months[1]} [" in shown.err
    assert again.loc["Mar", "log-loss"] == table.loc["Mar", "log-loss"]

    exports = tmp_path / "exports"
    straight = ["--out", str(tmp_path / "straight"), "--export", str(exports), *common[2:], "3"]
    whole = estimator_flights.main(straight)  # trains January and February in one run
    assert whole.loc["Mar", "log-loss"] == table.loc["Mar", "log-loss"]

    parsed = estimator_flights.parse_arguments([*common, "3"])
    estimator = estimator_flights.make_estimator(parsed, thin.vocabulary_size)
    before = int((thin.month < 3).sum())
    march = thin.after(before).first(int((thin.month == 3).sum()))
    rows = estimator.predict(estimator_flights.make_input_fn(march, 64))
    probabilities = np.array([row["probability"] for row in rows])
    loss, auc = report.score(march.late, probabilities)
    assert loss == pytest.approx(table.loc["Mar", "log-loss"], rel=1e-5)
    # TensorFlow computes an approximate AUC from bins.
    assert auc == pytest.approx(table.loc["Mar", "AUC"], abs=0.01)
    (exported,) = exports.iterdir()
    with v1.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.loader.load(session, ["serve"], str(exported))
        signature = loaded.signature_def["serving_default"]
        feed = {signature.inputs[key].name: getattr(march, key) for key in ("ids", "dense")}
        served = session.run(signature.outputs["probability"].name, feed)
    np.testing.assert_allclose(served, probabilities, rtol=1e-5)


def test_without_estimators_the_example_names_the_packages(monkeypatch):
    def missing():
        raise ImportError("Run: pip install --no-deps tensorflow-estimator")

    monkeypatch.setattr(versions, "estimator", missing)
    with pytest.raises(ImportError, match="pip install --no-deps tensorflow-estimator"):
        estimator_flights.main([])
