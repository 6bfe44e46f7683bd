"""Draws the times of training steps."""

import math

from gallery import style

TITLES = {"W1": "matrix of 10 M floats", "W3": "4,096 rows of 1 M x 16"}


def speed(data, folder):
    """Draws speed.png: bars of step times relative to stock Adam, for each TensorFlow."""
    versions = data["versions"]
    figure, diagrams = style.figure(10.5, 8.4, nrows=2, ncols=len(versions), sharey="row")
    for row, (workload, what) in zip(diagrams, TITLES.items()):
        for axes, (version, found) in zip(row, versions.items()):
            bars(axes, found[workload])
            name = ".".join(version.split(".")[:2])
            style.title(axes, f"TF {name}")
        row[0].set_ylabel(f"{what}\n")
    legend = "\u25a0 composed rule   \u25a0 native kernel   | stock Adam = 1"
    figure.text(0.3, 1.0, legend, fontsize=style.FONT)
    style.save(figure, folder / "speed.png", dots=90)


def bars(axes, times):
    """Draws the bars of one TensorFlow."""
    stock = times["stock Adam"]
    names = [name for name in times if not name.endswith(", native")]
    for place, name in enumerate(reversed(names)):
        pairs = (times[name], style.SKY, 0.2), (times[name + ", native"], style.BLUE, -0.2)
        for value, colour, shift in pairs:
            ratio = value / stock
            axes.barh(place + shift, ratio, 0.38, color=colour)
            axes.text(ratio + 0.03, place + shift, f"{ratio:.2f}", va="center", fontsize=11)
    axes.axvline(1, color="black", linewidth=1.5, linestyle="--")
    axes.set_yticks(range(len(names)))
    axes.set_yticklabels([name.replace("stock Adam", "Adam") for name in reversed(names)])


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
