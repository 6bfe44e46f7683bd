"""The table and the plots of `compare_optimizers.py`."""

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from flights.optimizers import CATALOGUE
from flights.report import WINDOW, loss_per_flight, score
from flights.training import replacing

REFERENCE = "Adagrad"
FAMILIES = list(dict.fromkeys(choice.family for choice in CATALOGUE.values()))
COLORS = dict(zip(FAMILIES, ("tab:blue", "tab:red", "tab:orange", "tab:purple", "tab:green")))
SAME = 1e-4  # curves that differ by at most 1e-4 share a legend entry
CUT = 0.06  # how far above the best log-loss the plot of the ranking reaches
TOP = 0.15  # how far above the reference's log-loss the plots over time reach


def scored(flights):
    """Returns a mask of the flights that the ranking uses, and a description of these flights.

    The ranking of a whole year uses July to December only, because the learning rates were tuned on
    January to June. The ranking of a shorter training uses all flights.
    """
    if flights.month[-1] == 12:
        return flights.month >= 7, "July-December"
    return np.ones(flights.size, bool), f"the first {flights.size:,} flights"


def ranking(flights, outcomes, settings):
    """Returns a table with one row per optimizer, sorted by log-loss; diverged optimizers are last.

    Args:
      flights: `Flights`.
      outcomes: dict from name to `compare_optimizers.Outcome`.
      settings: dict from name to `Settings`.
    """
    inside, _ = scored(flights)
    rows = {}
    for name, outcome in outcomes.items():
        loss, auc = score(flights.late[inside], outcome.predictions[inside])
        rows[name] = {
            "family": CATALOGUE[name].family,
            "learning_rate": settings[name].learning_rate,
            "log_loss": loss,
            "auc": auc,
            "milliseconds_per_step": outcome.milliseconds,
            "state_bytes": outcome.state_bytes,
        }
    return pd.DataFrame.from_dict(rows, orient="index").sort_values("log_loss", kind="mergesort")


def format_ranking(flights, table):
    """Returns the table of `ranking` as text."""
    inside, period = scored(flights)
    late = flights.late[inside]
    shown = pd.DataFrame(
        {
            "log-loss": table["log_loss"].map("{:.4f}".format),
            "AUC": table["auc"].map("{:.4f}".format),
            "ms/step": table["milliseconds_per_step"].map("{:.2f}".format),
            "KB of state": (table["state_bytes"] / 1000).map("{:,.0f}".format),
            "learning rate": table["learning_rate"].map("{:g}".format),
            "": ["TensorFlow's own" if CATALOGUE[name].stock else "" for name in table.index],
        }
    )
    constant = score(late, np.full(late.shape, late.mean()))[0]
    lines = [
        f"Predictions of {period}, each made before training on its flight:",
        shown.to_string(),
        f"Always predicting the share of late flights would score {constant:.4f}.",
    ]
    return "\n".join(lines)


def write_over_time(path, flights, predictions):
    """Plots the running mean log-loss of each optimizer over time.

    One diagram shows all log-losses. A further diagram for each family shows the differences from
    the log-loss of the reference optimizer.

    Args:
      path: the path of the PNG.
      flights: `Flights`.
      predictions: dict from name to array [flights].
    """
    reference = REFERENCE if REFERENCE in predictions else next(iter(predictions))
    window = max(1, min(WINDOW, flights.size // 4))
    shown = slice(window - 1, None, max(1, flights.size // 1000))
    running = {
        name: pd.Series(loss_per_flight(flights.late, values)).rolling(window).mean()[shown]
        for name, values in predictions.items()
    }
    times = flights.time[shown]
    figure = Figure(figsize=(14, 8))
    FigureCanvasAgg(figure)  # not pyplot, which may look for a display
    axes = figure.subplots(2, 3, sharex=True)
    gaps = {name: (loss - running[reference]).to_numpy() for name, loss in running.items()}
    top = axes.flat[0]
    for loss in running.values():
        top.plot(times, loss, color="0.8", linewidth=0.8)
    top.plot(times, running[reference], color="black", label=reference)
    top.set_ylim(*limits(running[reference], gaps))
    top.set_title("all")
    top.set_ylabel("log-loss")
    top.legend(loc="upper left")
    for each, family in zip(axes.flat[1:], FAMILIES):
        for gap in gaps.values():
            each.plot(times, gap, color="0.9", linewidth=0.8, zorder=0)
        each.axhline(0, color="black", linewidth=0.8)
        members = [name for name in gaps if CATALOGUE[name].family == family]
        for number, names in enumerate(together(members, gaps)):
            stock = any(CATALOGUE[name].stock for name in names)
            style = {"color": f"C{number}", "linestyle": "--" if stock else "-"}
            gap, label = gaps[names[0]], " = ".join(names)
            if not float(np.max(gap)) < TOP:  # also for NaN
                label += " (goes off the top)"
            each.plot(times, gap, label=label, **style)
        low, high = limits([0], gaps)
        each.set_ylim(low - 0.35 * (high - low), high)  # room for the legend
        each.set_title(family)
        each.set_ylabel(f"log-loss minus that of {reference}", fontsize=9)
        if members:
            each.legend(loc="lower left", fontsize=8)
    locator = AutoDateLocator(maxticks=8)
    top.xaxis.set_major_locator(locator)
    # One format per unit of the ticks, from years to seconds; days are shown with their month.
    by_unit = ["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S"]
    # The formats of ticks at which a larger unit begins.
    begins = ["%Y", "%b", "%d %b", "%d %b", "%H:%M", "%H:%M"]
    top.xaxis.set_major_formatter(
        ConciseDateFormatter(locator, formats=by_unit, zero_formats=begins, show_offset=False)
    )
    text = "Late arrivals 2013: log-loss (mean of the last {:,} flights), and difference from {}'s"
    figure.suptitle(text.format(window, reference))
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)


def limits(around, gaps):
    """Returns y limits for the curve `around` and for curves that differ from it by `gaps`.

    Apart from a margin, the upper limit is at most `TOP` above the maximum of `around`.
    """
    finite = np.concatenate([gap[np.isfinite(gap)] for gap in gaps.values()] + [[0.0]])
    low, high = np.min(around) + min(finite.min(), 0), np.max(around) + min(finite.max(), TOP)
    margin = 0.05 * (high - low) + 1e-6
    return low - margin, high + margin


def together(names, curves):
    """Groups names of curves; each differs from the first curve of its group by at most `SAME`."""
    groups = []
    for name in names:
        for group in groups:
            if np.allclose(curves[name], curves[group[0]], rtol=0, atol=SAME, equal_nan=True):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def write_ranking(path, flights, table):
    """Plots the `table` of `ranking`; the optimizer with the lowest log-loss is on top."""
    _, period = scored(flights)
    table = table.iloc[::-1]
    figure = Figure(figsize=(12, 1.8 + 0.27 * len(table)))
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 3, sharey=True)
    loss, milliseconds, state = axes
    worst = table["log_loss"].min() + CUT
    dots(loss, table["log_loss"].where(table["log_loss"] <= worst))
    for row, value in enumerate(table["log_loss"]):
        if not value <= worst:
            off_the_edge(loss, row, table.index[row], value)
    loss.set_title(f"log-loss, {period}", fontsize=10)
    dots(milliseconds, table["milliseconds_per_step"])
    milliseconds.set_xscale("log")
    milliseconds.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    milliseconds.xaxis.set_minor_locator(LogLocator(subs=(3, 4, 7)))
    milliseconds.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    milliseconds.xaxis.set_minor_formatter(
        FuncFormatter(lambda value, _: f"{value:g}" if value < 0.5 else "")
    )
    milliseconds.tick_params(axis="x", which="both", labelsize=8, pad=4)
    milliseconds.set_title("milliseconds per training step (logarithmic)", fontsize=10)
    dots(state, table["state_bytes"] / 1000)
    state.set_title("KB of state", fontsize=10)
    loss.set_yticks(np.arange(len(table)))
    loss.set_yticklabels(table.index)
    for family in FAMILIES:
        loss.plot([], [], "o", color=COLORS[family], label=family)
    loss.plot([], [], "o", color="black", markerfacecolor="white", label="TensorFlow's own")
    figure.legend(*loss.get_legend_handles_labels(), loc="lower center", ncol=3, fontsize=9)
    figure.suptitle(
        "Lower is better in all three diagrams; the best log-loss is on top", fontsize=11
    )
    inch = 1 / figure.get_figheight()
    figure.tight_layout(rect=(0, 0.8 * inch, 1, 1 - 0.2 * inch))
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)


def dots(axis, values):
    """Draws one value per optimizer, in the colour of its family."""
    for row, (name, value) in enumerate(values.items()):
        axis.plot(value, row, "o", **colors(name))
    axis.grid(axis="both", color="0.9")
    axis.set_axisbelow(True)


def off_the_edge(axis, row, name, value):
    """Draws an arrow and the value at the right edge of the plot, for a value beyond this edge."""
    edge = axis.get_yaxis_transform()  # x is from 0 to 1, y is the row
    axis.plot(1, row, ">", transform=edge, clip_on=False, **colors(name))
    text = "diverged" if np.isnan(value) else f"{value:.4f}"
    place = {"xytext": (-8, 0), "textcoords": "offset points", "ha": "right", "va": "center"}
    axis.annotate(text, (1, row), xycoords=edge, **place)


def colors(name):
    """Returns the colours of a marker, which is hollow for TensorFlow's own optimizers."""
    choice = CATALOGUE[name]
    color = COLORS[choice.family]
    return {"color": color, "markerfacecolor": "white" if choice.stock else color}
