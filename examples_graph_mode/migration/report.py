"""Judges the stages of the migration by their differences from trainings that were not moved.

A stage is compared with the training that never moves ("stayed"), the exit with the Session that
continues from the same state. Two TensorFlow versions round differently in each step, and n
rounding errors of random sign add up to about sqrt(n) times one error. The bound of a difference is
twice this sum. The size of one error is measured with a second training that never moves
("nudged"): before stage A, each number of its state is changed by one unit in the last place.
Counts of steps and decays must be equal.
"""

import numpy as np
import pandas as pd

from flights.model import loss_per_flight
from flights.report import draw_losses, new_figure, save_figure
from migration.files import MOVED, NUDGED, SESSION, STAYED

NO_EXIT = ("AdagradDecay",)  # optimizers that Keras does not have
KINDS = ("variables", "slots", "predictions")
COLUMNS = ("stage", "period", "to", "tensors", "arrived", "difference", "grade")
COLUMNS += (*KINDS, "share", "loss", "loss_of_reference")
NOTES = """\
arrived, difference: whether the state at the hand-over, and all predictions, variables and slots at
the end, equal those of a Session on the same TensorFlow, by np.array_equal. variables, slots,
predictions: the largest difference from the training that never moved (of an exit: from the
Session). share: the largest quotient of a difference and its bound (migration/report.py)."""
STYLES = {
    STAYED: dict(color="gold", linewidth=7),
    MOVED: dict(color="black", linewidth=1.5, linestyle=(0, (4, 3))),
}


def kind_of(name):
    """Returns which of `KINDS` an array of a run belongs to."""
    return name if name == "predictions" else "slots" if "/" in name else "variables"


def gaps(run, reference):
    """Returns a dict from name to the largest difference between two runs' arrays.

    Raises:
      ValueError: if the runs do not have the same arrays.
    """
    if set(run) != set(reference):
        raise ValueError(f"the arrays are {sorted(run)} and {sorted(reference)}")
    return {name: float(np.max(np.abs(np.float64(run[name]) - reference[name]))) for name in run}


def bound(reference, growth, steps):
    """Returns the largest allowed difference from the array `reference`.

    Args:
      reference: the array.
      growth: the difference between the nudged and the stayed training.
      steps: the number of training steps with different rounding.
    """
    if not np.issubdtype(reference.dtype, np.floating):
        return 0.0
    unit = np.finfo(reference.dtype).eps * np.max(np.abs(reference))
    return float(2 * np.sqrt(steps) * max(growth, unit))


def shares(run, reference, growth, steps):
    """Returns a dict from name to the quotient of a difference and its bound.

    Args:
      run: the run of a stage.
      reference: the run to compare it with.
      growth: the `gaps` between the nudged and the stayed training.
      steps: the number of training steps with different rounding.
    """
    found = {}
    for name, gap in gaps(run, reference).items():
        allowed = bound(reference[name], growth[name], steps)
        share = gap / allowed if allowed else (np.inf if gap else 0.0)
        found[name] = np.inf if np.isnan(share) else float(share)
    return found


def judge(story, flights, optimizer):
    """Returns the rows of an optimizer's table: dicts with a list of messages as "problems"."""
    rows = story.load_rows(optimizer)
    for row in rows:
        row.update(problems=[])
        judge_row(story, flights, optimizer, row)
    return rows


def judge_row(story, flights, optimizer, row):
    """Adds differences, log-losses and problems to a row that a stage has written."""

    def load(who):
        return story.load_run(optimizer, who, period)

    def complain(problem):
        row["problems"].append("{}, {stage}, to {to}: {}".format(optimizer, problem, **row))

    for what in ("arrived", "difference"):
        if row.get(what):
            complain(f"differs from the Session in {row[what]}")
    if "refused" in row:
        if optimizer not in NO_EXIT:
            complain("refused. " + row["refused"])
        return
    period, _ = story.period(row["period"])
    is_exit = row["stage"] == "exit"
    late = story.flights_of(flights, period).late
    run, reference = load(row["run"]), load(SESSION if is_exit else STAYED)
    row.update(loss=loss(late, run), loss_of_reference=loss(late, reference))
    if row["stage"] == "stay":
        return
    steps = period.stop - (period if is_exit else story.periods[1]).start
    growth = gaps(load(NUDGED), load(STAYED))
    found, differences = shares(run, reference, growth, steps), gaps(run, reference)
    for kind in KINDS:
        row[kind] = max(gap for name, gap in differences.items() if kind_of(name) == kind)
    where = max(found, key=found.get)
    row["share"] = found[where]
    if row.get("grade") != "differs" and row["share"] > 1:
        complain(f"{where} is off by {row['share']:.3g} times the bound")


def loss(late, run):
    """Returns the mean log-loss of a run's predictions."""
    return float(loss_per_flight(late, run["predictions"]).mean())


def format_rows(rows):
    """Returns the table of `judge` as text, and the reports of the exits."""
    table = pd.DataFrame(rows).reindex(columns=list(COLUMNS))
    for column in ("arrived", "difference"):
        table[column] = [words_for(row, column) for row in rows]
    lines = [table.to_string(index=False, na_rep="", float_format="{:.5g}".format)]
    for row in rows:
        if row["stage"] == "exit":
            lines.append(f"\nTo {row['to']}:\n{row.get('refused') or row['report']}")
    return "\n".join(lines)


def words_for(row, what):
    """Returns whether the row's stage was equal to the Session; "" if that was not tested."""
    return ("not equal" if row[what] else "bit-equal") if what in row else ""


def verdict(judged):
    """Returns a list of problems, and a text to print if there are none."""
    rows = [row for rows in judged.values() for row in rows]
    problems = [problem for row in rows for problem in row["problems"]]
    moves = [row for row in rows if "difference" in row]
    largest = max(row["share"] for row in rows if "share" in row and row.get("grade") != "differs")
    good = (
        f"All {len(moves)} hand-overs are bit-equal to the Session of their TensorFlow. No "
        f"difference from the training that never moved exceeds {100 * largest:.1f} % of its bound."
    )
    return problems, good


def write_plot(path, story, flights, judged):
    """Plots the log-loss of the moved and the unmoved training, and where the moves were."""
    figure = new_figure(7.5 * len(judged), 5)
    axes = figure.subplots(1, len(judged), sharey=True, squeeze=False)[0]
    for each, (optimizer, rows) in zip(axes, judged.items()):
        runs = {name: of_the_year(story, optimizer, name) for name in (STAYED, MOVED)}
        draw_losses(each, flights, runs, STYLES)
        each.set_title(optimizer)
        for row in rows:
            if row["stage"] in ("A", "B", "C"):
                time = story.flights_of(flights, story.period(row["period"])[0]).time[0]
                each.axvline(time, color="0.3", linewidth=1)
                tensorflow, _, way = row["to"].partition(" ")
                label = f" {row['stage']}: {tensorflow}\n {way}"
                place = dict(transform=each.get_xaxis_transform(), va="top", fontsize="small")
                each.text(time, 0.985, label, **place)
    save_figure(path, figure)


def of_the_year(story, optimizer, who):
    """Returns the predictions of a training for the whole year."""
    first, *others = story.periods
    runs = [story.load_run(optimizer, STAYED, first)]
    runs += [story.load_run(optimizer, who, period) for period in others]
    return np.concatenate([run["predictions"] for run in runs])
