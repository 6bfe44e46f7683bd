"""Draws trainings with TF1's optimizers and with PyTorch's of the same names."""

from gallery import style


def draw(data, folder):
    """Draws torch.png: a diagram for each pair of optimizers."""
    figure, diagrams = style.figure(10.5, 7.6, nrows=2, ncols=2, sharex=True)
    for axes, (title, pair) in zip(diagrams.flat, data["pairs"].items()):
        steps = [data["steps"] * (0.5 + number) for number in range(len(pair["torch"]))]
        axes.plot(steps, pair["tensorflow"], color=style.BLUE, linewidth=2.5)
        axes.plot(steps, pair["torch"], "--", color=style.VERMILION, linewidth=2.5)
        high = max(pair["torch"] + pair["tensorflow"])
        low = min(pair["torch"] + pair["tensorflow"])
        axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
        own = pair["own"].replace("torch.optim.", "")
        right = dict(transform=axes.transAxes, ha="right", fontsize=style.FONT, weight="bold")
        axes.text(0.98, 0.88, "TF1", color=style.BLUE, **right)
        axes.text(0.98, 0.76, f"- - torch {own}", color=style.VERMILION, **right)
        style.title(axes, title)
    for axes in diagrams[1]:
        axes.set_xlabel("training steps")
    for axes in diagrams[:, 0]:
        axes.set_ylabel("log-loss")
    style.save(figure, folder / "torch.png", dots=90)
