"""Writes object-based checkpoints under exact names, completely or not at all."""

import contextlib
import os

from legacy_opt import versions


def write(checkpoint, path):
    """Writes a tf.train.Checkpoint; `path` is the prefix.

    The number that `save` appends to the names of the files is removed, and the file `checkpoint`
    in their folder deleted.
    """
    options = {}
    if versions.for_a_session():
        options["session"] = versions.keras_2().backend.get_session()
    # Calls `save`, not `write`: a user's `restore` expects a save_counter, which `write` omits.
    written, folder = checkpoint.save(path, **options), os.path.dirname(path)
    for name in os.listdir(folder):
        if name.startswith(os.path.basename(written) + "."):
            ending = name[len(os.path.basename(written)) :]
            os.replace(os.path.join(folder, name), path + ending)
    os.remove(os.path.join(folder, "checkpoint"))


def publish(working, folder):
    """Renames the files in a `WorkingFolder` to their final names in a folder.

    An index is renamed last, because it makes the checkpoint complete.
    """
    names = sorted(working.written(), key=lambda name: (name.endswith(".index"), name))
    with contextlib.suppress(FileNotFoundError):
        if names[-1].endswith(".index"):  # an old index must not describe new data
            os.remove(os.path.join(folder, names[-1]))
    for name in names:
        os.replace(os.path.join(working.path, name), os.path.join(folder, name))
