"""Scores predictions by log-loss and AUC, and plots running means of the log-loss."""

import calendar

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.metrics import log_loss, roc_auc_score

from flights.model import clipped, loss_per_flight
from flights.training import replacing

PERIODS = {calendar.month_abbr[month]: [month] for month in range(1, 13)}
PERIODS.update({"Jan-Jun": range(1, 7), "Jul-Dec": range(7, 13), "year": range(1, 13)})
WINDOW = 10000  # flights in the plot's running mean, about eleven days


def score(late, predictions):
    """Returns (log-loss, AUC).

    The AUC is nan if all or none of the flights are late. Both scores are nan if a prediction is
    not finite.
    """
    if not np.isfinite(predictions).all():  # diverged
        return float("nan"), float("nan")
    probability = clipped(predictions)
    both = 0 < late.mean() < 1
    auc = roc_auc_score(late, probability) if both else float("nan")
    return log_loss(late, probability, labels=[0, 1]), auc


def metrics_table(flights, predictions):
    """Returns the scores in each of `PERIODS` that has flights: a row per period and training.

    Args:
      flights: `Flights`.
      predictions: dict from the name of a training to its predictions [flights].
    """
    rows = []
    for period, months in PERIODS.items():
        inside = np.isin(flights.month, list(months))
        late = flights.late[inside]
        for name, values in predictions.items() if inside.any() else ():
            loss, auc = score(late, values[inside])
            row = dict(period=period, optimizer=name, flights=late.size, late=late.mean())
            rows.append(dict(row, log_loss=loss, auc=auc))
    return pd.DataFrame(rows)


def format_table(table):
    """Returns the table of `metrics_table` as text, with a line per period."""
    wide = table.pivot(index="period", columns="optimizer", values=["log_loss", "auc"])
    return wide.reindex(table["period"].unique()).to_string(float_format="{:.4f}".format)


def new_figure(*size):
    """Returns a figure of a size in inches; not of pyplot, which may look for a display."""
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    return figure


def save_figure(path, figure):
    """Writes a figure as PNG."""
    figure.tight_layout()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)


def draw_losses(axes, flights, predictions, styles):
    """Draws the running mean of each training's log-loss.

    Args:
      axes: the diagram.
      flights: `Flights`.
      predictions: dict from the name of a training to its predictions [flights].
      styles: dict from the name to arguments of `axes.plot`.
    """
    window = max(1, min(WINDOW, flights.size // 10))
    shown = slice(window - 1, None, max(1, flights.size // 4000))
    for name, values in predictions.items():
        running = pd.Series(loss_per_flight(flights.late, values)).rolling(window).mean()
        axes.plot(flights.time[shown], running.to_numpy()[shown], label=name, **styles[name])
    axes.set_ylabel(f"log-loss, mean of the last {window:,} flights")
    axes.grid(color="0.92")
    axes.legend(loc="lower left")


def write_plot(path, flights, predictions, styles, title):
    """Writes the diagram of `draw_losses` to a file."""
    figure = new_figure(11, 5.5)
    axes = figure.subplots()
    draw_losses(axes, flights, predictions, styles)
    axes.set_title(title)
    axes.set_xlabel("scheduled departure")
    save_figure(path, figure)
