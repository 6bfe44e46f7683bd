"""Measures the step times of benchmarks/embeddings.py for a picture.

python -m benchmarks.gallery.embeddings [STEPS]
"""

import os
import sys

import tensorflow as tf

from benchmarks import embeddings
from benchmarks.gallery.files import write
from legacy_opt import versions

ROWS = (10**4, 10**5, 10**6, 10**7)


def main(steps=23):
    """Writes embeddings.json; the largest table needs up to 9 GB of memory."""
    names = embeddings.makers(versions.keras_facts()["generation"])
    found = {name: [embeddings.measure(name, rows, steps) for rows in ROWS] for name in names}
    write(
        "embeddings",
        {
            "what": f"Model.fit, batches of {embeddings.BATCH:,} ids, an Embedding with "
            f"{embeddings.COLUMNS} columns; nothing compiled with XLA; median of {steps} steps",
            "note": os.environ.get("GALLERY_NOTE", ""),
            "environment": {"tensorflow": tf.__version__, "processors": os.cpu_count()},
            "rows": list(ROWS),
            "milliseconds": {
                name: [round(1e3 * each["seconds"], 2) for each in results]
                for name, results in found.items()
                if all(results)
            },
        },
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
