"""Reports log-loss and AUC of predictions, as a table, a CSV, a plot and a summary in words."""

import calendar

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.metrics import log_loss, roc_auc_score

from flights.model import decay_steps
from flights.training import replacing

PERIODS = {"Jan-Jun": range(1, 7), "Jul-Dec": range(7, 13), "year": range(1, 13)}
WINDOW = 10000  # flights in the plot's running mean, about eleven days
COLORS = {"Adagrad": "tab:blue", "AdagradDecay": "tab:red", "SGD": "tab:green"}


def clipped(predictions):
    """Returns float64 probabilities, clipped to the range from 1e-7 to 1 - 1e-7.

    Clipping makes the log-loss finite. Do not rely on the clipping of scikit-learn, because it
    depends on the version of scikit-learn.
    """
    return np.clip(np.asarray(predictions, np.float64), 1e-7, 1 - 1e-7)


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


def metrics_table(flights, predictions, names):
    """Computes the scores of each month and period.

    Args:
      flights: `Flights`.
      predictions: array [names, flights].
      names: a list with the name of each row of `predictions`.

    Returns:
      A DataFrame. Its index has "Jan" to "Dec" and the names of `PERIODS`; periods without flights
      are left out. Its columns are flights, late, (log-loss, name), ..., (AUC, name), ...
    """
    periods = {calendar.month_abbr[month]: [month] for month in range(1, 13)}
    periods.update(PERIODS)
    rows = {}
    for period, months in periods.items():
        inside = np.isin(flights.month, list(months))
        if not inside.any():
            continue
        late = flights.late[inside]
        row = {("flights", ""): inside.sum(), ("late", ""): late.mean()}
        for name, values in zip(names, predictions):
            row["log-loss", name], row["AUC", name] = score(late, values[inside])
        rows[period] = row
    table = pd.DataFrame.from_dict(rows, orient="index")
    columns = [("flights", ""), ("late", "")]
    columns += [(metric, name) for metric in ("log-loss", "AUC") for name in names]
    return table.reindex(columns=pd.MultiIndex.from_tuples(columns)).astype({columns[0]: int})


def format_table(table):
    """Returns the table of `metrics_table` as text."""
    return table.to_string(float_format="{:.4f}".format)


def summary(table, names, settings, steps):
    """Returns a summary in words.

    The summary has the log-losses, a comparison of AdagradDecay with Adagrad, and the number of
    decays.
    """
    period = "Jul-Dec" if "Jul-Dec" in table.index else table.index[-1]
    losses = table.loc[period, "log-loss"]
    ranked = sorted(names, key=lambda name: losses[name])
    lines = [f"{period} log-loss: {', '.join(f'{name} {losses[name]:.4f}' for name in ranked)}."]
    if "AdagradDecay" in names and "Adagrad" in names:
        lines.append(compare(table, period, "AdagradDecay", "Adagrad"))
        # The seed does not matter for the logistic model, which starts at zeros.
        if settings["Adagrad"].model != "logistic":
            lines.append("These are results of one seed; --sweep shows how seeds change them.")
    if "AdagradDecay" in names:
        decay_step = settings["AdagradDecay"].decay_step
        lines.append(
            f"The accumulator decayed {len(decay_steps(steps, decay_step))} times (every "
            f"{decay_step} steps)."
        )
        if steps < 100000 and decay_step != 100000:
            lines[-1] += (
                f" With DeepRec's default of 100000 it would not have decayed in {steps} steps."
            )
    return "\n".join(lines)


def compare(table, period, ours, other):
    """Returns a text that compares optimizer `ours` with `other`, in a period and in each month."""
    months = [month for month in table.index if month in list(calendar.month_abbr)]
    gap = table["log-loss", ours] - table["log-loss", other]
    worse = [month for month in months if gap[month] > 0]
    size = abs(gap[period])
    if size < 0.00005:
        text = f"{ours} and {other} are equal to four decimals in {period}; "
    else:
        verdict = "better" if gap[period] < 0 else "worse"
        share = 100 * size / table.loc[period, ("log-loss", other)]
        names = ours, verdict, other, size, share, period
        text = "{} is {} than {} by {:.4f} ({:.2f} %) in {}; ".format(*names)
    if not worse:
        return text + f"{ours} is worse in no month."
    lost = ", ".join(f"{month} (+{gap[month]:.5f})" for month in worse)
    return text + f"{ours} is worse in {len(worse)} of {len(months)} months: {lost}."


def write_csv(path, table):
    """Writes a CSV with one line per period and optimizer."""
    metrics = table[["log-loss", "AUC"]]
    lines = [
        dict(
            period=period,
            optimizer=name,
            flights=table.loc[period, ("flights", "")],
            late=table.loc[period, ("late", "")],
            log_loss=metrics.loc[period, ("log-loss", name)],
            auc=metrics.loc[period, ("AUC", name)],
        )
        for period in table.index
        for name in metrics["log-loss"].columns
    ]
    with replacing(path) as temporary:
        pd.DataFrame(lines).to_csv(temporary, index=False)


def loss_per_flight(late, predictions):
    """Returns the log-loss of each flight, float64."""
    probability = clipped(predictions)
    return -np.log(np.where(late > 0, probability, 1 - probability))


def write_plot(path, flights, predictions, settings, batch_size):
    """Plots the running log-loss of all optimizers.

    A second diagram shows each optimizer's mean log-loss so far, minus that of the first optimizer.

    Args:
      path: the path of the PNG.
      flights: `Flights`.
      predictions: array [names, flights].
      settings: dict from name to `Settings`, in the order of `predictions`.
      batch_size: flights per step.
    """
    names = list(settings)
    figure = Figure(figsize=(11, 7.5))
    FigureCanvasAgg(figure)  # not pyplot, which may look for a display
    top, bottom = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 2]})
    if "AdagradDecay" in settings:
        steps = decay_steps(-(-flights.size // batch_size), settings["AdagradDecay"].decay_step)
        mark_decays((top, bottom), [flights.time[step * batch_size] for step in steps])
    losses = [loss_per_flight(flights.late, values) for values in predictions]
    shown = slice(None, None, max(1, flights.size // 4000))
    window = min(WINDOW, flights.size)
    for name, loss in zip(names, losses):
        running = pd.Series(loss).rolling(window).mean().to_numpy()
        top.plot(flights.time[shown], running[shown], color=COLORS[name], label=name)
    count = np.arange(1, flights.size + 1)
    settled = slice(window // 4, None, shown.step)  # the mean of a few flights is noise
    for name, loss in zip(names[1:], losses[1:]):
        gap = np.cumsum(loss - losses[0]) / count
        bottom.plot(flights.time[settled], gap[settled], color=COLORS[name], label=name)
    top.set_title("Late arrivals 2013, each batch predicted before training on it")
    top.set_ylabel(f"log-loss, mean of the last {window:,} flights")
    top.legend(loc="lower left")
    bottom.axhline(0, color=COLORS[names[0]])
    bottom.set_ylabel(f"log-loss so far\nminus {names[0]}'s")
    bottom.set_xlabel("scheduled departure")
    figure.tight_layout()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)


def mark_decays(axes, times):
    """Draws grey lines where AdagradDecay's accumulator decays."""
    for each in axes:
        for number, time in enumerate(times):
            label = "accumulator decays" if number == 0 else None
            each.axvline(time, color="0.85", linewidth=0.8, zorder=0, label=label)
