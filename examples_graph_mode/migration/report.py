"""The table of the stages, its verdict, and the plot.

A hand-over moves a training from a Session to Keras or back. An exit replaces the converted
optimizer by Keras' own optimizer.

Two runs are never moved. In one of the two, the nudged run, each number in the variables and slots
is changed by one unit in the last place at the time of the first hand-over (stage A). The later
differences between the two runs show how rounding errors grow.
"""

import textwrap

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure

from flights.report import WINDOW, loss_per_flight
from flights.training import replacing
from migration.files import MOVED, NUDGED, SESSION, STAYED

NO_EXIT = ("AdagradDecay",)  # optimizers that Keras does not have
KINDS = ("variables", "slots", "predictions")
# Explains the columns of `format_rows`.
NOTES = """\
"the Session" is a training on the same TensorFlow, from the same state, without the bridge.
"bit-equal" means that all predictions, variables and slots are equal by np.array_equal, at the
hand-over and at the end. "of bound" is the largest quotient of a difference and the allowed
difference, its bound. Two TensorFlow versions round differently in each step, and n rounding errors
of random sign add up to about sqrt(n) times one error. The bound is twice this sum. The size of one
error is measured with a second run that never moves: at stage A each number of its state is changed
by one unit in the last place, and the run continues to December. Counts of steps and decays must be
equal."""


class Difference:
    """The differences between two `Run`s, and their quotients by the bounds of `bound`.

    Args:
      run: the `Run`.
      reference: the `Run` to compare `run` with.
      growth: the differences between the nudged run and the other unmoved run; see `gaps`.
      steps: the number of training steps in which `run` and `reference` rounded differently.

    Attributes:
      largest: dict from each of `KINDS` to the largest difference.
      share: the largest quotient of an array's difference and the array's bound.
      where: the name of the array with this quotient; None if there is no difference.
    """

    def __init__(self, run, reference, growth, steps):
        self.largest, self.share, self.where = dict.fromkeys(KINDS, 0.0), 0.0, None
        for (kind, name), gap in gaps(run, reference).items():
            self.largest[kind] = max(self.largest[kind], gap)
            allowed = bound(named(reference, kind)[name], growth[kind, name], steps)
            share = gap / allowed if allowed else (np.inf if gap else 0.0)
            share = np.inf if np.isnan(share) else share
            if share > self.share:
                self.share, self.where = float(share), name


def gaps(run, reference):
    """Returns a dict from (kind, name) to the largest difference between two runs' arrays.

    Raises:
      ValueError: if the runs do not have the same arrays.
    """
    found = {}
    for kind in KINDS:
        arrays, others = named(run, kind), named(reference, kind)
        if set(arrays) != set(others):
            raise ValueError(f"{kind}: {sorted(arrays)} and {sorted(others)}")
        for name, value in arrays.items():
            found[kind, name] = float(np.max(np.abs(value.astype(np.float64) - others[name])))
    return found


def named(run, kind):
    """Returns the arrays of one of `KINDS`: a dict from name to array."""
    part = getattr(run, kind)
    if not isinstance(part, dict):
        return {kind: part}
    return {name if isinstance(name, str) else ", ".join(name): part[name] for name in part}


def bound(reference, growth, steps):
    """Returns the largest allowed difference from `reference`; `NOTES` explains the formula."""
    if not np.issubdtype(reference.dtype, np.floating):
        return 0.0
    unit = np.finfo(reference.dtype).eps * np.max(np.abs(reference))
    return float(2 * np.sqrt(steps) * max(growth, unit))


# --- the table


def judge(story, flights, optimizer):
    """Returns the rows of an optimizer's table: dicts with a list of messages as "problems"."""
    rows = story.load_rows(optimizer)
    places = {row["stage"]: row["to"] for row in rows}
    before = {"A": "stay", "B": "A", "C": "B", "exit": "B"}
    for row in rows:
        row.update(optimizer=optimizer, problems=[])
        row["from"] = places[before[row["stage"]]] if row["stage"] in before else None
        judge_row(story, flights, row)
    return rows


def judge_row(story, flights, row):
    """Adds differences, log-losses and problems to a row that a stage has written."""
    title = "{optimizer}, {stage}, to {to}".format(**row)
    for what in ("arrived", "difference"):
        if row.get(what):
            row["problems"].append(f"{title}: {row[what]}")
    if "refused" in row:
        if row["optimizer"] not in NO_EXIT:
            row["problems"].append(f"{title}: refused. {row['refused']}")
        return
    period, _ = story.period(row["period"])
    is_exit = row["stage"] == "exit"
    run, session, stayed, nudged = (
        story.load_run(row["optimizer"], who, period) if needed else None
        for who, needed in (
            (row["run"], True),
            (SESSION, is_exit),
            (STAYED, True),
            (NUDGED, row["from"]),
        )
    )
    late = story.flights_of(flights, period).late
    reference = session if is_exit else stayed
    row.update(loss=loss(late, run), loss_of_reference=loss(late, reference))
    if not row["from"]:
        return
    first = period if is_exit else story.periods[1]
    growth = gaps(nudged, stayed)
    steps = period.stop - first.start
    difference = Difference(run, reference, growth, steps)
    allowed = bound(reference.predictions, growth["predictions", "predictions"], steps)
    row.update(difference.largest, bound=allowed, share=difference.share, where=difference.where)
    if row.get("grade") != "differs" and not difference.share <= 1:
        problem = "%s: %s is off by %.3g times the bound"
        row["problems"].append(problem % (title, difference.where, difference.share))


def loss(late, run):
    """Returns the mean log-loss of a `Run`'s predictions."""
    return float(loss_per_flight(late, run.predictions).mean())


TITLES = ("", "months", "from -> to", "tensors", "the Session") + KINDS + ("of bound", "log-loss")


def format_rows(rows):
    """Returns two tables, of the hand-overs and of the exits, and the exits' reports as text."""
    moves = [cells_of(row) for row in rows if row["stage"] != "exit"]
    exits = [row for row in rows if row["stage"] == "exit"]
    cells = [TITLES + ("not moved",), *moves]
    cells += [TITLES + ("Session's",), *[cells_of(row) for row in exits]]
    lines = aligned(cells)
    middle = len(moves) + 1
    indent = " " * lines[0].index("variables")
    lines.insert(middle, f"\n{indent}largest difference from the Session:")
    lines.insert(0, indent + "largest difference from the run that never moved:")
    for row in exits:
        said = textwrap.fill(row["refused"], 98) if "refused" in row else row["report"]
        lines += ["", f"To {row['to']}:"] + textwrap.indent(said, "  ").splitlines()
    return "\n".join(lines)


def verdict(judged):
    """Returns a list of problems, and a text to print if there are none."""
    rows = [row for rows in judged.values() for row in rows]
    problems = [problem for row in rows for problem in row["problems"]]
    moves = [row for row in rows if "difference" in row]
    shares = [row["share"] for row in rows if "share" in row and row.get("grade") != "differs"]
    good = (
        f"All {len(moves)} hand-overs are bit-equal to the Session of their TensorFlow. The "
        "largest difference from the run that never moved (of an exit: from the Session) is "
        f"{100 * max(shares):.1f} % of the bound."
    )
    return problems, textwrap.fill(good, 100)


def cells_of(row):
    """Returns the cells of a row as text."""
    if not row["from"]:
        return ["", row["period"], row["to"]] + [""] * 6 + [f"{row['loss']:.5f}", ""]
    cells = [row["stage"], row["period"], f"{row['from']} -> {row['to']}"]
    if "refused" in row:
        return cells + ["", "refused"] + [""] * 6
    equal = "not equal" if row.get("difference") or row.get("arrived") else "bit-equal"
    cells += [str(row["tensors"]), row.get("grade") or equal]
    cells += [f"{row[kind]:.1e}" if row[kind] else "0" for kind in KINDS]
    cells.append("none" if row.get("grade") == "differs" else f"{100 * row['share']:.1f} %")
    return cells + [f"{row['loss']:.5f}", f"{row['loss_of_reference']:.5f}"]


def aligned(rows):
    """Returns the rows as lines: the first three columns aligned left, all others aligned right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            cell.ljust(width) if number < 3 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


# --- the plot

SHADE = {"Session": "white", "Keras": "#e8f1fb"}
EXIT_STYLES = (dict(color="tab:red"), dict(color="tab:cyan", linestyle=(0, (2, 2))))


def write_plot(path, story, flights, judged):
    """Plots the log-loss of the runs, and the differences of their predictions.

    Args:
      path: the path of the PNG.
      story: the `Story`.
      flights: the story's `Flights`.
      judged: dict from optimizer to its rows, as `judge` returns them.
    """
    figure = Figure(figsize=(7.5 * len(judged), 8))
    FigureCanvasAgg(figure)  # pyplot is not used, because it may look for a display
    axes = figure.subplots(2, len(judged), sharex=True, sharey="row", squeeze=False)
    for column, (optimizer, rows) in zip(axes.T, judged.items()):
        runs = read_runs(story, optimizer, rows)
        draw_losses(column[0], flights, runs)
        draw_differences(column[1], story, flights, runs, rows)
        for each in column:
            shade(each, story, flights, rows, labels=each is column[0])
            each.grid(color="0.9")
            each.set_xlim(flights.time[0], flights.time[-1])
            each.xaxis.set_major_formatter(DateFormatter("%b"))
        column[0].set_title(optimizer)
    axes[0, 0].set_ylabel(f"log-loss, mean of the last {window_of(flights):,} flights")
    axes[1, 0].set_ylabel("largest difference of two predictions, by day")
    axes[0, 0].legend(loc="lower left")
    axes[1, 0].legend(loc="upper left", fontsize="small")
    figure.tight_layout()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)


def read_runs(story, optimizer, rows):
    """Returns a dict from a run's name in the legend to the run's predictions for the year.

    The predictions are nan in periods in which the run was not trained.
    """
    exits = [row["run"] for row in rows if row["stage"] == "exit" and "refused" not in row]
    names = {"never moved": STAYED, "moved": MOVED, "never moved, nudged": NUDGED, SESSION: SESSION}
    names.update((f"exit to {name}'s own", name) for name in exits)
    result = {}
    for name, who in names.items():
        parts = []
        for number, period in enumerate(story.periods):
            size = len(story.load_run(optimizer, STAYED, period).predictions)
            source = STAYED if who in (MOVED, NUDGED) and number == 0 else who
            if source in (STAYED, MOVED, NUDGED) or number == len(story.periods) - 1:
                parts.append(story.load_run(optimizer, source, period).predictions)
            else:
                parts.append(np.full(size, np.nan))
        result[name] = np.concatenate(parts)
    return result


def exits_among(runs):
    """Returns the names of the runs with Keras' own optimizers."""
    return [name for name in runs if name.startswith("exit")]


def window_of(flights):
    """Returns the number of flights over which the running mean is taken."""
    return max(1, min(WINDOW, flights.size // 10))


def draw_losses(axes, flights, runs):
    """Draws the running log-loss of each run."""
    window = window_of(flights)
    shown = slice(window - 1, None, max(1, flights.size // 4000))
    styles = {
        "never moved": dict(color="gold", linewidth=7),
        "moved": dict(color="black", linewidth=1.5, linestyle=(0, (4, 3))),
    }
    for name, style in zip(exits_among(runs), EXIT_STYLES):
        styles[name] = dict(style, linewidth=1.5)
    for name, style in styles.items():
        # A run with Keras' own optimizer continues the moved run at the exit. So its first running
        # means include the moved run's last predictions.
        predictions = np.where(np.isnan(runs[name]), runs["moved"], runs[name])
        loss = pd.Series(loss_per_flight(flights.late, predictions))
        running = loss.rolling(window).mean().to_numpy().copy()
        running[np.isnan(runs[name])] = np.nan
        axes.plot(flights.time[shown], running[shown], label=name, **style)


def draw_differences(axes, story, flights, runs, rows):
    """Draws each day's largest difference between predictions of two runs, and the bounds."""
    day = flights.time.astype("datetime64[D]")
    lines = [
        ("never moved, nudged", "never moved", dict(color="0.6")),
        ("moved", "never moved", dict(color="black")),
    ]
    lines += [(name, SESSION, style) for name, style in zip(exits_among(runs), EXIT_STYLES)]
    for name, reference, style in lines:
        gap = pd.Series(np.abs(runs[name].astype(np.float64) - runs[reference]))
        largest = gap.groupby(day).max()
        label = f"{name} - {reference}"
        # Zeros are left out, because the axis is logarithmic. If all stages run on the same
        # TensorFlow, most differences are zero.
        axes.plot(largest.index, largest.where(largest > 0), label=label, **style)
    label = "bound"
    for row in rows:
        if row["stage"] in ("A", "B", "C"):
            period, _ = story.period(row["period"])
            times = story.flights_of(flights, period).time[[0, -1]]
            axes.plot(times, [row["bound"]] * 2, color="black", linestyle=":", label=label)
            label = None
    axes.set_yscale("log")
    axes.set_ylim(1e-9, 1)


def shade(axes, story, flights, rows, labels):
    """Marks the hand-overs and the periods of Session and Keras, with text if `labels` is true."""
    for row in rows:
        if row["stage"] == "exit":
            continue
        period, _ = story.period(row["period"])
        first, last = story.flights_of(flights, period).time[[0, -1]]
        kind = "Keras" if "Keras" in row["to"] else "Session"
        axes.axvspan(first, last, color=SHADE[kind], zorder=0, linewidth=0)
        if row["from"]:
            axes.axvline(first, color="0.3", linewidth=1)
        if not labels:
            continue
        place = dict(transform=axes.get_xaxis_transform(), va="top", fontsize="small")
        label = row["to"].replace(" ", "\n", 1)
        label = f"{row['stage']}: {label}" if row["from"] else label
        axes.text(first + (last - first) / 50, 0.985, label, **place)
