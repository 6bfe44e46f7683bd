"""Damages records, state files and checkpoints at random. Needs TensorFlow.

    python -m tests.tools.mutate_records --seeds 1000

Each must be refused in one line, or be used within bounds. The program fails if another error is
raised, if it takes too long or too much memory, or if a refused export leaves a file.
"""

import argparse
import json
import random
import resource
import struct
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

from legacy_opt import recorded
from legacy_opt.compat.state.checkpoint_files import index
from legacy_opt.compat.state.checkpoint_files.crc32c import masked_crc32c
from legacy_opt.compat.state.checkpoint_files.errors import CheckpointError
from legacy_opt.compat.state.checkpoints import state_transfer
from legacy_opt.recorded import state_files
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows

SECONDS, MEGABYTES = 5.0, 300
VALUES = [
    None,
    True,
    -1,
    0,
    3,
    1 << 70,
    1e400,
    "",
    "nan",
    "inf",
    "0x1p+1",
    "a" * 2000,
    [],
    {},
    [[]],
]
VALUES += ["Input", "Const", "Exec", "__import__", "float64", "element", "scalar", "matrix_row"]


def places(value, found=None):
    """Returns all (container, key) of a document."""
    found = [] if found is None else found
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in items:
        found.append((value, key))
        if isinstance(each, (dict, list)):
            places(each, found)
    return found


def damaged(document, draw):
    """Changes a document at one to three places, and returns it as text."""
    for _ in range(draw.randint(1, 3)):
        container, key = draw.choice(places(document))
        way = draw.randrange(4)
        if way == 0:
            container[key] = draw.choice(VALUES)
        elif way == 1 and isinstance(container, dict):
            container[draw.choice(["x", "nodes", "Const"])] = container.pop(key)
        elif way == 2:
            other, its_key = draw.choice(places(document))
            container[key] = json.loads(json.dumps(other[its_key]))
        elif isinstance(container, list):
            del container[key]
        if not places(document):
            break
    text = json.dumps(document)
    if draw.random() < 0.2:
        cut = draw.randrange(len(text))
        text = text[:cut] + draw.choice(["", "[", '"', "\0"]) + text[cut + draw.randint(0, 9) :]
    return text


def train(record):
    """Trains two steps with dense and sparse gradients."""
    weights = {"w": np.ones([4, 3], record.dtype), "b": np.ones([3], record.dtype)}
    given = {name: 0.1 for name, each in record.hyperparameters.items() if each.value is None}
    optimizer = NumpyOptimizer(record, weights, **given)
    rows = Rows(np.array([1, 1]), np.ones([2, 3], record.dtype))
    for gradient in np.ones([4, 3], record.dtype), rows:
        optimizer.step({"w": gradient, "b": np.ones([3], record.dtype)})


def damaged_bytes(content, draw):
    """Truncates a file, or changes some bytes of it."""
    content = bytearray(content)
    if draw.random() < 0.2:
        return content[: draw.randrange(len(content))]
    for _ in range(draw.randint(1, 3)):
        start, end = (draw.randrange(len(content)) for _ in range(2))
        size = draw.choice([1, 1, 2, 8])
        new = content[end : end + size]
        if draw.random() < 0.7:
            new = bytes(draw.choice([0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)]) for _ in new)
        content[start : start + len(new)] = new
    return content


def with_right_checksum(content, draw):
    """Changes the block of an index that has the tensors, and its checksum."""
    _, position = index._block_handle(content, len(content) - 48)  # of an empty block
    blocks, _ = index._block_handle(content, position)
    _, first = next(index._block_records(content, blocks))
    (offset, size), _ = index._block_handle(first, 0)
    block = bytes(damaged_bytes(content[offset : offset + size], draw))
    block = block.ljust(size, b"\0")[:size] + b"\0"
    checksum = struct.pack("<I", masked_crc32c([block]))
    return content[:offset] + block + checksum + content[offset + size + 5 :]


def write_checkpoint(folder):
    """Writes a checkpoint of Adam with a partitioned variable."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("", partitioner=v1.fixed_size_partitioner(2)):
            table = v1.get_variable("table", [6, 2])
        bias = v1.get_variable("bias", [2], partitioner=None)
        loss = tf.reduce_sum(tf.square(table)) + tf.reduce_sum(tf.square(bias - 1.0))
        step = v1.train.get_or_create_global_step()
        train_op = v1.train.AdamOptimizer(0.1).minimize(loss, step)
        session.run(v1.global_variables_initializer())
        session.run(train_op)
        return v1.train.Saver().save(session, str(folder / "model.ckpt"), write_meta_graph=False)


def use_record(draw, folder):
    """Damages a record and trains with it."""
    del folder
    document = json.loads(draw.choice(list(recorded.catalogue().values())).read_text("utf-8"))
    train(recorded.loads(damaged(document, draw)))


def use_state_file(draw, folder):
    """Damages a state file and reads it."""
    path = folder / "damaged.npz"
    path.write_bytes(damaged_bytes((folder / "state.npz").read_bytes(), draw))
    state_files.read(path)


def use_checkpoint(draw, folder):
    """Damages a checkpoint and exports its state."""
    content = {path.suffix: path.read_bytes() for path in folder.glob("model.ckpt.*")}
    suffix = draw.choice(sorted(content))
    if draw.random() < 0.6:
        content[".index"] = with_right_checksum(content[".index"], draw)
    else:
        content[suffix] = damaged_bytes(content[suffix], draw)
    for suffix, each in content.items():
        (folder / ("damaged" + suffix)).write_bytes(each)
    out = folder / "exported.npz"
    try:
        state_transfer.export_state(folder / "damaged", recorded.load(folder / "rule.json"), out)
        state_files.read(out)
        out.unlink()
    finally:
        if out.exists():
            raise AssertionError("a refused export leaves a file")


def attempt(use, draw, folder):
    """Returns whether the damaged file was refused, and the problem, or ""."""
    started = time.time()
    refused, problem = False, ""
    try:
        use(draw, folder)
    except (recorded.RecordError, CheckpointError) as error:
        refused, problem = True, "several lines" if "\n" in str(error) else ""
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if time.time() - started > SECONDS:
        problem = f"{time.time() - started:.0f} seconds"
    return refused, problem


def main(seeds):
    """Returns whether all damaged files were refused, or used within bounds."""
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        rule = folder / "rule.json"
        recorded.save(recorded.record(tf.compat.v1.train.AdamOptimizer(0.1)), rule)
        checkpoint = write_checkpoint(folder)
        state_transfer.export_state(checkpoint, recorded.load(rule), folder / "state.npz")
        for use in use_record, use_state_file, use_checkpoint:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            refused = 0
            for seed in range(seeds):
                was_refused, problem = attempt(use, random.Random(seed), folder)
                refused += was_refused
                if problem:
                    failures += 1
                    print(f"{use.__name__}, seed {seed}: {problem[:200]}")
            more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10) - before
            print(f"{use.__name__}: {refused} of {seeds} refused, {more} MB")
            failures += more > MEGABYTES
    return not failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    sys.exit(not main(parser.parse_args().seeds))
