"""Draws trainings: their drift, their accumulators, and their moves between TensorFlows."""

import datetime

from benchmarks.gallery import style
from benchmarks.gallery.draw_catalogue import dates, months

ZERO = 1e-9  # where a difference of 0 is drawn on a logarithmic axis


def drift(data, folder):
    """Draws drift.png: distances between trainings of two TensorFlows."""
    figure, diagrams = style.figure(10.5, 5.2, ncols=2, sharey=True)
    old, new = (short_version(data[key]) for key in ("old", "new"))
    styles = {
        "old": (f"TensorFlow {old}", style.BLUE, "-"),
        "flipped": ("one flipped bit", style.VERMILION, "--"),
        "keras": ("to_keras: 0", style.GREEN, "-"),
    }
    names = {"softsign": "smooth model (softsign)", "relu": "model with relu"}
    for axes, (activation, name) in zip(diagrams, names.items()):
        distances = data["distances"][activation]
        for key, (label, colour, line) in styles.items():
            values = [max(each, ZERO) for each in distances[key]]
            steps = [data["steps"] * (1 + number) for number in range(len(values))]
            axes.semilogy(steps, values, line, color=colour, linewidth=2.5)
            place = LABELS[activation, key]
            axes.text(
                *place, label, color=style.of_text(colour), fontsize=style.FONT, weight="bold"
            )
        axes.set_xlabel("training steps")
        axes.set_xticks([0, 1000, 2000, 3000])
        style.title(axes, name)
    diagrams[0].set_ylim(ZERO / 2, 1)
    diagrams[0].set_yticks([ZERO, 1e-7, 1e-5, 1e-3, 1e-1])
    diagrams[0].set_yticklabels(["0", "$10^{-7}$", "$10^{-5}$", "$10^{-3}$", "0.1"])
    diagrams[0].minorticks_off()
    diagrams[0].set_ylabel(f"largest difference of a prediction\nfrom TensorFlow {new}")
    style.save(figure, folder / "drift.png", dots=95)


LABELS = {
    ("softsign", "old"): (900, 3e-6),
    ("softsign", "flipped"): (900, 4e-8),
    ("softsign", "keras"): (900, 1.6e-9),
    ("relu", "old"): (300, 0.2),
    ("relu", "flipped"): (1200, 2.2e-8),
    ("relu", "keras"): (900, 1.6e-9),
}


def accumulator(data, folder):
    """Draws accumulator.png: the accumulators of Adagrad and AdagradDecay."""
    figure, diagrams = style.figure(10.5, 4.6, ncols=2)
    titles = {"dense": "bias (in every batch)", "row": "weight of departures at 17 h"}
    days = dates(data["days"])
    styles = {"Adagrad": (style.ORANGE, "--"), "AdagradDecay": (style.BLUE, "-")}
    for axes, (key, text) in zip(diagrams, titles.items()):
        for name, (colour, line) in styles.items():
            values = data["accumulators"][name][key]
            axes.plot(days, values, line, color=colour, linewidth=2.5)
            words = dict(ha="right", fontsize=style.FONT, weight="bold")
            place = days[int(0.97 * len(days))], values[-1]
            words.update(color=style.of_text(colour), textcoords="offset points")
            axes.annotate(name, place, (0, 8), **words)
        months(axes)
        axes.set_ylim(0, None)
        style.title(axes, text)
    diagrams[0].set_ylabel("accumulator")
    style.save(figure, folder / "accumulator.png", dots=95)


def story(data, folder):
    """Draws migration.png: a training that moved, and one that never moved."""
    figure, axes = style.figure(10.5, 4.8)
    days = dates(data["days"])
    stayed, moved = data["losses"]["never moved"], data["losses"]["moved"]
    axes.plot(days, smooth(stayed), color=style.ORANGE, linewidth=9, solid_capstyle="round")
    axes.plot(days, smooth(moved), color="black", linewidth=2.2, linestyle=(0, (4, 2.5)))
    low, high = 0.25, 0.6
    starts = [datetime.datetime(2013, 1, 1), *dates(move["day"] for move in data["moves"])]
    wheres = [data["first"], *(move["to"] for move in data["moves"])]
    ends = [*starts[1:], datetime.datetime(2014, 1, 1)]
    above = dict(ha="center", va="bottom", fontsize=style.FONT)
    for number, (start, end, where) in enumerate(zip(starts, ends, wheres)):
        version, _, kind = where.partition(" ")
        in_keras = kind.startswith("Keras")
        if in_keras:
            axes.axvspan(start, end, color=style.SKY, alpha=0.18, linewidth=0)
        if number:
            axes.axvline(start, color="0.3", linewidth=1.5)
            axes.text(start, high + 0.012, "\u2192", **dict(above, fontsize=26))
        text = f"{'Keras 3' if in_keras else 'Session'}\nTF {short_version(version)}"
        axes.text(start + (end - start) / 2, high + 0.01, text, **above)
    axes.set_ylim(low, high)
    months(axes)
    axes.set_yticks([0.3, 0.4, 0.5, 0.6])
    axes.set_ylabel("log-loss")
    words = {
        "\u2501 never moved": (0.305, style.of_text(style.ORANGE)),
        "- - moved three times": (0.275, "black"),
    }
    for text, (place, colour) in words.items():
        day = datetime.datetime(2013, 1, 8)
        axes.text(day, place, text, color=colour, fontsize=16, weight="bold")
    style.save(figure, folder / "migration.png", dots=95)


def short_version(version):
    """Returns the first two numbers of a version."""
    return ".".join(version.split(".")[:2])


def smooth(values, window=5):
    """Returns means of `window` neighbours (of fewer at the ends)."""
    half = window // 2
    parts = [values[max(0, place - half) : place + half + 1] for place in range(len(values))]
    return [sum(part) / len(part) for part in parts]
