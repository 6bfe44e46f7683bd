"""Draws the times of training steps."""

import math

from benchmarks.gallery import style

TITLES = {"W1": "a matrix of 10 M floats", "W3": "4,096 rows of 1 M x 16"}
LIMITS = {"W1": (0.09, 60), "W3": (3e-6, 40)}
TICKS = {"W1": {0.3: "0.3", 1: "1", 3: "3", 10: "10"}, "W3": {0.001: "0.001", 1: "1"}}


def speed(data, folder):
    """Draws speed.png: step times relative to stock Adam, for each TensorFlow."""
    versions = data["versions"]
    figure, diagrams = style.figure(
        11, 8.2, nrows=2, ncols=len(versions), sharex="row", sharey="row", squeeze=False
    )
    for row, workload in zip(diagrams, TITLES):
        for axes, (version, found) in zip(row, versions.items()):
            bars(axes, found[workload], LIMITS[workload], TICKS[workload])
            style.title(axes, "TF " + ".".join(version.split(".")[:2]))
        row[0].set_ylabel(TITLES[workload])
    figure.supxlabel("time of a step, as a multiple of TensorFlow's own Adam", fontsize=style.FONT)
    words = dict(fontsize=style.FONT + 1, weight="bold", va="bottom")
    figure.text(0.17, 0.99, "\u25a0 composed rule", color=style.of_text(style.ORANGE), **words)
    figure.text(0.45, 0.99, "\u25a8 native kernel", color=style.BLUE, **words)
    style.save(figure, folder / "speed.png", dots=85)


def bars(axes, times, limits, ticks):
    """Draws the bars of one TensorFlow from 1, the time of stock Adam: to the left is faster."""
    stock = times["stock Adam"]
    names = [name for name in times if not name.endswith(", native")]
    axes.set_xscale("log")
    axes.set_xlim(*limits)
    for place, name in enumerate(reversed(names)):
        pairs = (name, style.ORANGE, "", 0.2), (name + ", native", style.BLUE, "////", -0.2)
        for key, colour, hatch, shift in pairs:
            if key == "stock Adam":
                continue
            ratio = times[key] / stock
            look = dict(left=1, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
            axes.barh(place + shift, ratio - 1, 0.38, **look)
            text = f"{ratio:.2f}" if ratio > 0.095 else f"{ratio:.1g}"
            right = ratio > 1
            gap = 1.15 if right else 1 / 1.15
            words = dict(ha="left" if right else "right", va="center", fontsize=12)
            axes.text(ratio * gap, place + shift, text, **words)
    axes.axvline(1, color="black", linewidth=1.5)
    axes.set_yticks(range(len(names)))
    axes.set_yticklabels([name.replace("stock ", "") for name in reversed(names)])
    axes.set_xticks(list(ticks))
    axes.set_xticklabels(list(ticks.values()))
    axes.minorticks_off()


EMBEDDINGS = {  # {name of a training: (its label, colour, line and marker)}
    "Keras 3 Adam": ("Keras 3's Adam", style.VERMILION, "--", "s"),
    "v1 Adam, to_keras": ("v1's Adam", style.ORANGE, ":", "D"),
    "v1 Adam, native": ("v1's Adam, native", style.PURPLE, "-.", "v"),
    "LazyAdam, native": ("LazyAdam, native", style.GREEN, "-", "^"),
    "LazyAdam, native, read_rows_only": ("LazyAdam, native,\nread_rows_only", style.BLUE, "-", "o"),
}
ROWS = {10**4: "10,000", 10**5: "100,000", 10**6: "1 M", 10**7: "10 M"}


def embeddings(data, folder):
    """Draws embeddings.png: step times as a function of the rows of an Embedding."""
    figure, axes = style.figure(10, 5.4)
    rows = data["rows"]
    times = data["milliseconds"]
    places = style.spread([math.log10(times[name][-1]) for name in EMBEDDINGS], 0.23)
    for (name, (label, colour, line, marker)), place in zip(EMBEDDINGS.items(), places):
        axes.loglog(rows, times[name], line, marker=marker, color=colour, lw=2.5, ms=8)
        words = dict(color=style.of_text(colour), va="center", fontsize=style.FONT, weight="bold")
        axes.text(rows[-1] * 1.4, 10**place, label, **words)
    axes.set_xticks(rows)
    axes.set_xticklabels([ROWS[each] for each in rows])
    axes.set_yticks([1, 10, 100, 1000])
    axes.set_yticklabels(["1", "10", "100", "1,000"])
    axes.minorticks_off()
    axes.set_ylim(1.5, 2000)
    axes.set_xlabel("rows of the Embedding (32 columns)")
    axes.set_ylabel("milliseconds of a step")
    style.save(figure, folder / "embeddings.png", dots=90)
