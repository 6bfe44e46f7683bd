"""Draws trainings with TF1's optimizers and with PyTorch's of the same names."""

from benchmarks.gallery import style
from benchmarks.gallery.draw_catalogue import running_means


def draw(data, folder):
    """Draws torch.png: a diagram for each pair of optimizers."""
    figure, diagrams = style.figure(10.5, 7, nrows=2, ncols=2, sharex=True)
    for axes, (title, pair) in zip(diagrams.flat, data["pairs"].items()):
        steps = [data["steps"] * (1 + number) for number in range(len(pair["torch"]))]
        ours, theirs = (running_means(pair[key]) for key in ("tensorflow", "torch"))
        axes.plot(steps, ours, color=style.BLUE, linewidth=3)
        axes.plot(steps, theirs, "--", color=style.VERMILION, linewidth=3)
        low, high = min(ours + theirs), max(ours + theirs)
        axes.set_ylim(low - 0.1 * (high - low), high + 0.1 * (high - low))
        own = pair["own"].replace("torch.optim.", "")
        right = dict(transform=axes.transAxes, ha="right", fontsize=style.FONT, weight="bold")
        axes.text(0.98, 0.9, "\u2501 TensorFlow 1", color=style.BLUE, **right)
        axes.text(0.98, 0.78, f"- - torch {own}", color=style.VERMILION, **right)
        style.title(axes, title)
    for axes in diagrams[1]:
        axes.set_xlabel("training steps")
    for axes in diagrams[:, 0]:
        axes.set_ylabel("log-loss so far")
    style.save(figure, folder / "torch.png", dots=90)
