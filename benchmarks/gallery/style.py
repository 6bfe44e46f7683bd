"""The style of all pictures: colours of Okabe and Ito, large fonts, white background."""

import io

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

# Masataka Okabe and Kei Ito's colours, which colour-blind readers can tell apart.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"
# Darker versions of light colours, for text on white.
_OF_TEXT = {ORANGE: "#9A6A00", SKY: "#1B6F9E", PURPLE: "#9C4A78"}
FONT = 15
DOTS = 110  # per inch
COLOURS = 64  # of a file's palette


def figure(width, height, font=FONT, **arguments):
    """Returns a figure of a size in inches, and its diagrams (the `arguments` are of subplots)."""
    made = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(made)  # not of pyplot, which may look for a display
    diagrams = made.subplots(**arguments)
    for axes in getattr(diagrams, "flat", [diagrams]):
        axes.tick_params(labelsize=font - 2)
        for item in (axes.xaxis.label, axes.yaxis.label):
            item.set_size(font)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.grid(color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
    return made, diagrams


def of_text(colour):
    """Returns the colour of text about something that has a colour."""
    return _OF_TEXT.get(colour, colour)


def title(axes, text, font=FONT):
    """Writes the title of a diagram at its left end."""
    axes.set_title(text, loc="left", fontsize=font)


def save(made, path, dots=DOTS, pad=0.15):
    """Writes a figure as a PNG with a palette."""
    made.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    made.savefig(buffer, dpi=dots, format="png", bbox_inches="tight", pad_inches=pad)
    buffer.seek(0)
    _write(Image.open(buffer), path)


def shrink(path):
    """Replaces a PNG by one with a palette."""
    with Image.open(str(path)) as image:
        image.load()
    _write(image, path)


def _write(image, path):
    image.convert("RGB").quantize(COLOURS, dither=0).save(str(path), optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB, {image.size[0]} x {image.size[1]}")


def spread(positions, gap):
    """Returns positions that are at least `gap` apart, near the given ones, in the same order."""
    order = sorted(range(len(positions)), key=lambda each: positions[each])
    found = list(positions)
    for _ in range(200):
        for low, high in zip(order, order[1:]):
            missing = gap - (found[high] - found[low])
            if missing > 1e-12:
                found[low] -= missing / 2
                found[high] += missing / 2
    return found
