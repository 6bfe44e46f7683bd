"""Damages proofs at random. Needs TensorFlow, because it shares code with `mutate_records`.

    python -m tests.tools.mutate_proofs --seeds 6000

A file whose bytes have changed must be refused. A file with other parts and a right hash, which
somebody has made by hand, must be refused in one line, or be used within bounds. The program fails
if another error is raised, or if it takes too long or too much memory.
"""

import argparse
import json
import random
import resource
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from legacy_opt import proofs, recorded
from legacy_opt.recorded.proofs import files, reference
from tests.tools import mutate_records

FLIPS = 300
RULES = "AdamOptimizer", "MomentumOptimizer", "AdafactorOptimizer", "AdagradDecayOptimizer"


def drawn(folder):
    """Returns the paths of some proofs."""
    paths = []
    for name in RULES:
        for rows in False, True:
            paths.append(folder / f"{name}-{rows}.npz")
            record = recorded.load(name)
            proofs.write(paths[-1], proofs.draw(record, steps=4, rows=rows, ends=[1, 4]))
    return paths


def refuse_bytes(content, path):
    """Writes bytes; raises an AssertionError if they are read as a proof."""
    path.write_bytes(content)
    proofs.read(path)
    raise AssertionError("a damaged file was read")


def use_bytes(draw, paths, path):
    """Damages bytes of a proof, and reads it."""
    content = draw.choice(paths).read_bytes()
    damaged = mutate_records.damaged_bytes(content, draw)
    if bytes(damaged) != content:
        refuse_bytes(damaged, path)


def changed(arrays, draw):
    """Changes one array, or its name."""
    name = draw.choice(sorted(arrays))
    array = arrays[name]
    way = draw.randrange(7)
    if way == 0:
        del arrays[name]
    elif way == 1:
        arrays[draw.choice(["x", name + "/x", "ids/w", "values/1/b", "start/record"])] = array
    elif way == 2:
        arrays[name] = array.astype(draw.choice(["float64", "int64", "int8", "complex64", "bool"]))
    elif way == 3:
        arrays[name] = array.reshape(-1)[: draw.randrange(array.size + 1)]
    elif way == 4:
        arrays[name] = np.stack([array, array])
    elif way == 5 and array.size:
        array = np.array(array)
        number = draw.choice([-1, 0, 2**31, 1e30, float("nan"), float("inf")])
        with np.errstate(all="ignore"):
            place = draw.randrange(array.size)
            array.reshape(-1)[place] = np.array(number).astype(array.dtype)
        arrays[name] = array
    else:
        other = draw.choice(sorted(arrays))
        arrays[name], arrays[other] = arrays[other], array
    return arrays


def use_parts(draw, paths, path):
    """Changes the JSON text or an array of a proof, reads it, and trains by it."""
    with np.load(str(draw.choice(paths))) as file:
        arrays = {name: file[name] for name in file.files}
    if draw.random() < 0.5:
        text = mutate_records.damaged(json.loads(arrays["proof"].tobytes().decode()), draw)
        arrays["proof"] = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    else:
        for _ in range(draw.randint(1, 2)):
            arrays = changed(arrays, draw) or arrays
    with zipfile.ZipFile(str(path), "w") as archive:
        for name, array in arrays.items():
            with archive.open(name + ".npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    files.add_hash(path)
    proof = proofs.read(path)
    found = dict(enumerate(reference.run(proof), start=1))
    proofs.judge(proof.ends, found)


def flips(paths, path):
    """Returns the problems of files with one flipped bit."""
    content, draw, problems = paths[0].read_bytes(), random.Random(0), []
    for place in sorted(draw.sample(range(len(content)), FLIPS)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << draw.randrange(8)
        refused, problem = mutate_records.attempt(
            lambda _, path, damaged=damaged: refuse_bytes(damaged, path), draw, path
        )
        if problem or not refused:
            problems.append(f"bit in byte {place}: {problem or 'accepted'}")
    return problems


def main(seeds):
    """Returns whether all damaged files were refused, or used within bounds."""
    with tempfile.TemporaryDirectory() as folder:
        paths, path = drawn(Path(folder)), Path(folder, "damaged.npz")
        problems = flips(paths, path)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        for use in use_bytes, use_parts:
            refused = 0
            for seed in range(seeds // 2):
                was_refused, problem = mutate_records.attempt(
                    lambda draw, path, use=use: use(draw, paths, path), random.Random(seed), path
                )
                refused += was_refused
                problems += [f"{use.__name__}, seed {seed}: {problem[:200]}"] if problem else []
            print(f"{use.__name__}: {refused} of {seeds // 2} refused")
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10) - before
        print(f"{FLIPS} flipped bits; {more} MB")
        print("\n".join(problems))
        return not problems and more <= mutate_records.MEGABYTES


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6000)
    sys.exit(not main(parser.parse_args().seeds))
