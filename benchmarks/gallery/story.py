"""Reads the trainings of migration_story.py, for the picture of README.md.

python -m benchmarks.gallery.story FOLDER
"""

import sys

from benchmarks.gallery.files import block_means, write
from flights.model import loss_per_flight
from migration.files import MOVED, STAYED, read_story
from migration.report import judge, of_the_year

BLOCKS = 160
OPTIMIZER = "AdagradDecay"


def main(folder):
    """Writes story.json."""
    story, flights = read_story(folder)
    moves = [
        {
            "day": str(story.flights_of(flights, story.period(row["period"])[0]).time[0])[:10],
            "to": row["to"],
            "equal_to_session": not (row["arrived"] or row["difference"]),
            "share": round(row["share"], 4),
        }
        for row in judge(story, flights, OPTIMIZER)
        if row["stage"] in ("A", "B", "C")
    ]
    runs = {who: of_the_year(story, OPTIMIZER, who) for who in (STAYED, MOVED)}
    losses = {who: loss_per_flight(flights.late, each) for who, each in runs.items()}
    _, middles = block_means(flights.late, BLOCKS)
    gap = abs(runs[MOVED].astype("float64") - runs[STAYED]).max()
    write(
        "story",
        {
            "what": f"{OPTIMIZER}, {flights.size:,} flights, migration_story.py",
            "first": story.load_rows(OPTIMIZER)[0]["to"],
            "days": [str(flights.time[each])[:10] for each in middles],
            "moves": moves,
            "largest_difference_of_a_prediction": float(f"{gap:.2g}"),
            "losses": {who: block_means(each, BLOCKS)[0] for who, each in losses.items()},
        },
    )


if __name__ == "__main__":
    main(sys.argv[1])
