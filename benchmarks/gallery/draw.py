"""Draws the pictures of docs/gallery.md from the data in docs/data/gallery.

python -m benchmarks.gallery.draw                 all pictures
python -m benchmarks.gallery.draw drift speed     some of them
"""

import sys

from benchmarks.gallery import draw_catalogue, draw_leave, draw_times, draw_torch, draw_trainings
from benchmarks.gallery.files import IMAGES, read

# {name of the data: a function from the data and the folder of the pictures to their paths}
PICTURES = {
    "catalogue": draw_catalogue.draw,
    "drift": draw_trainings.drift,
    "speed": draw_times.speed,
    "accumulator": draw_trainings.accumulator,
    "embeddings": draw_times.embeddings,
    "leave_speed": draw_leave.draw,
    "torch": draw_torch.draw,
    "story": draw_trainings.story,
    "tensorboard": lambda data, folder: None,  # its picture is a screenshot
}


def main(names=(), folder=IMAGES):
    """Draws pictures into a folder; all pictures if no name is given."""
    for name in names or PICTURES:
        PICTURES[name](read(name), folder)


if __name__ == "__main__":
    main(sys.argv[1:])
