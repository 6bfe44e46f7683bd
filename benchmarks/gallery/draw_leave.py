"""Draws the time of recorded rules in PyTorch and JAX relative to the libraries' own optimizers."""

from benchmarks.gallery import style

PANELS = [  # (library, case, title)
    ("torch", "10 M floats", "PyTorch, 10 M floats"),
    ("torch", "200 of 64 x 64", "PyTorch, 200 of 64 x 64"),
    ("jax", "10 M floats", "JAX, 10 M floats"),
]
SITUATIONS = (style.BLUE, "", 0.2), (style.ORANGE, "////", -0.2)
LIMITS, TICKS = (0.06, 90), {0.1: "0.1", 0.3: "0.3", 1: "1", 3: "3", 10: "10", 30: "30"}


def draw(data, folder):
    """Draws leave_speed.png."""
    figure, diagrams = style.figure(13, 6.6, font=13, ncols=len(PANELS), sharex=True)
    for axes, (library, case, title) in zip(diagrams, PANELS):
        rows = [each for each in data[library]["rows"] if each[0] == case]
        bars(axes, [each for each in rows if not each[2].startswith("C ")])
        style.title(axes, title, font=13)
    figure.supxlabel("time of a step, as a multiple of the other optimizer's", fontsize=13)
    words = dict(fontsize=14, weight="bold", va="bottom")
    after, rested = "\u25a0 right after an operation", "\u25a8 after 30 ms of rest"
    figure.text(0.17, 0.99, after, color=style.BLUE, **words)
    figure.text(0.55, 0.99, rested, color=style.of_text(style.ORANGE), **words)
    style.save(figure, folder / "leave_speed.png", dots=80)


def bars(axes, rows):
    """Draws the bars of a case from 1, the time of the other optimizer: to the left is faster."""
    axes.set_xscale("log")
    axes.set_xlim(*LIMITS)
    for place, (_, _, _, *ratios) in enumerate(reversed(rows)):
        for ratio, (colour, hatch, shift) in zip(ratios, SITUATIONS):
            look = dict(left=1, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
            axes.barh(place + shift, ratio - 1, 0.38, **look)
            right = ratio > 1
            words = dict(ha="left" if right else "right", va="center", fontsize=10)
            gap = 1.1 if right else 1 / 1.1
            axes.text(ratio * gap, place + shift, f"{ratio:.2g}", **words)
    axes.axvline(1, color="black", linewidth=1.5)
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels([f"{one}\nto {other}" for _, one, other, *_ in reversed(rows)], fontsize=9)
    axes.set_xticks(list(TICKS))
    axes.set_xticklabels(list(TICKS.values()))
    axes.minorticks_off()
