"""Draws the curves of all optimizers of the catalogue, and an overview."""

import datetime

from benchmarks.gallery import style

SHOWN_FROM = 8  # the first point of the curves; a mean of fewer flights is noise
MONTHS = {1: "Jan", 4: "Apr", 7: "Jul", 10: "Oct"}


def dates(days):
    """Returns the dates of a list of texts such as "2013-01-31" or "2013-01-31T05"."""
    return [datetime.datetime.strptime(day[:10], "%Y-%m-%d") for day in days]


def months(axes):
    """Labels the time axis with the quarters of 2013."""
    axes.set_xlim(datetime.datetime(2012, 12, 28), datetime.datetime(2014, 1, 3))
    axes.set_xticks([datetime.datetime(2013, month, 1) for month in MONTHS])
    axes.set_xticklabels(list(MONTHS.values()))


def running_means(losses):
    """Returns the mean of all values so far, for each place."""
    found, total = [], 0.0
    for count, loss in enumerate(losses, 1):
        total += loss
        found.append(total / count)
    return found


def draw(data, folder):
    """Draws catalogue.png, and a picture of each optimizer in the folder `curves`."""
    overview(data, folder / "catalogue.png")
    days = dates(data["days"])[SHOWN_FROM:]
    curves = {
        name: running_means(each["losses"])[SHOWN_FROM:]
        for name, each in data["optimizers"].items()
    }
    for name, each in data["optimizers"].items():
        if each["own"]:
            curve(name, days, curves, folder / "curves" / (name + ".png"))


def curve(name, days, curves, path):
    """Draws one optimizer's curve over those of all others."""
    figure, axes = style.figure(4.4, 2.7, font=14)
    for other, values in curves.items():
        if other != name:
            axes.plot(days, values, color="0.78", linewidth=1)
    axes.plot(days, curves[name], color="white", linewidth=5.5, solid_capstyle="round")
    axes.plot(days, curves[name], color=style.BLUE, linewidth=3, solid_capstyle="round")
    axes.set_yticks([0.42, 0.46, 0.50, 0.54])
    axes.set_ylim(0.41, 0.55)
    months(axes)
    axes.set_ylabel("log-loss so far")
    style.title(axes, short(name), font=16)
    style.save(figure, path, dots=95, pad=0.1)


def short(name):
    """Returns the name of a class without "Optimizer"."""
    return name.replace("Optimizer", "")


def overview(data, path):
    """Draws log-loss, state and time of all optimizers, a line for each."""
    optimizers = data["optimizers"]
    names = sorted(optimizers, key=lambda name: -optimizers[name]["log_loss"])
    columns = {
        "log_loss": ("log-loss,\nJuly to December", "{:.3f}"),
        "state_per_parameter": ("state: numbers\nper parameter", "{:.1f}"),
        "milliseconds": ("milliseconds\nof a step", "{:.2f}"),
    }
    figure, diagrams = style.figure(10.5, 9.6, ncols=3, sharey=True)
    for axes, (key, (label, text)) in zip(diagrams, columns.items()):
        values = [optimizers[name][key] for name in names]
        low = min(values) - 0.005 if key == "log_loss" else 0
        high = max(values)
        for place, (name, value) in enumerate(zip(names, values)):
            own = optimizers[name]["own"]
            colour = style.BLUE if own else style.ORANGE
            if low == 0:  # otherwise the length of a line would mean nothing
                axes.plot([low, value], [place] * 2, color=colour, linewidth=2, alpha=0.6)
            face = colour if own else "white"
            axes.plot(value, place, "o" if own else "D", color=colour, mfc=face, ms=8, mew=2)
            gap = 0.04 * (high - low)
            axes.text(value + gap, place, text.format(value), va="center", fontsize=13)
        axes.set_xlim(low, high + 0.3 * (high - low))
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.grid(False)
        style.title(axes, label)
    axes = diagrams[0]
    axes.set_yticks(range(len(names)))
    axes.set_yticklabels([short(name) for name in names], fontsize=14)
    for tick, name in zip(axes.get_yticklabels(), names):
        tick.set_color("black" if optimizers[name]["own"] else style.of_text(style.ORANGE))
    for axes in diagrams:
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.tick_params(axis="y", length=0)
    own = "\u25c7 TensorFlow's own optimizers   \u25cf optimizers of legacy-opt"
    figure.text(0.02, 0.0, own, fontsize=14, va="top")
    style.save(figure, path, dots=90)
