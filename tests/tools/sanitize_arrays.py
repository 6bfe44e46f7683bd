"""Trains arrays with kernels that were compiled with sanitizers (`make sanitize`).

All rules of the catalogue train NumPy arrays, which malloc has allocated, with the bits of NumPy.
Arrays that do not fit must be refused before a kernel gets their addresses.
"""

import numpy as np

from legacy_opt import recorded
from legacy_opt.recorded.native import NativeOptimizer
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows

SHAPES = ((5, 7), (33, 40), (70,), (3, 9, 17))


def gradients(record, shape):
    """Yields a dense and a sparse gradient, where the rule has an update."""
    draw, group = np.random.RandomState(0), record.group_of("w", shape)
    if not isinstance(group.dense, str):
        yield draw.standard_normal(shape).astype("f4")
    if not isinstance(group.sparse, str):
        ids = np.array([0, shape[0] - 1, 1, 0])
        yield Rows(ids, draw.standard_normal((4, *shape[1:])).astype("f4"))


def train(name):
    """Trains, and returns how many wrong arrays were refused."""
    record, refused = recorded.load(name), 0
    for shape in SHAPES:
        for gradient in gradients(record, shape):
            found = []
            for cls in NumpyOptimizer, NativeOptimizer:
                weights = {"w": np.ones(shape, "f4")}
                optimizer = cls(record, weights)
                for _ in range(2):
                    optimizer.step({"w": gradient})
                found.append((weights, optimizer.state.slots))
            np.testing.assert_equal(*found)
            slots = optimizer.state.slots["w"]
            for slot, array in list(slots.items()):
                for wrong in array.reshape(-1)[:0], array.astype("f2"), array[..., None]:
                    slots[slot] = wrong
                    try:
                        optimizer.step({"w": gradient})
                    except recorded.RecordError:
                        refused += 1
                    else:
                        raise AssertionError(f"{name}: {slot} of the shape {wrong.shape}")
                slots[slot] = array
    return refused


def main():
    """Trains with all rules."""
    refused = sum(map(train, sorted(recorded.catalogue())))
    print(f"{len(recorded.catalogue())} rules trained arrays; {refused} wrong arrays were refused")


if __name__ == "__main__":
    main()
