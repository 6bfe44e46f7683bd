"""Small training problems with given gradients, so that results depend only on the optimizer."""

from typing import NamedTuple, Optional

import numpy as np


class Rows(NamedTuple):
    """A sparse gradient; `values` has a row for each element of `ids`, and ids may repeat."""

    values: np.ndarray
    ids: np.ndarray


def dense(gradient, value):
    """Returns the gradient of a variable as a dense array; sums rows of equal ids."""
    if not isinstance(gradient, Rows):
        return gradient
    whole = np.zeros_like(value)
    np.add.at(whole, gradient.ids, gradient.values)
    return whole


class Problem(NamedTuple):
    """Initial values of variables and their gradients in each training step.

    Attributes:
      values: the initial values by variable name.
      gradients: for each step a dict from variable name to its gradient, an array or `Rows`.
      sparse: the names of the variables with sparse gradients.
      dtype: the name of the variables' dtype.
      global_step: the name of the global step's dtype.
      batches: how many gradients the optimizer accumulates for each increment of the global step.
    """

    values: dict
    gradients: list
    sparse: tuple
    dtype: str
    global_step: Optional[str] = "int64"
    batches: int = 1

    @property
    def steps(self):
        return len(self.gradients)


def bfloat16():
    import tensorflow as tf

    return tf.bfloat16.as_numpy_dtype


def numpy_dtype(name):
    return bfloat16() if name == "bfloat16" else np.dtype(name).type


def make(kind, dtype="float32", steps=24, seed=0, global_step="int64"):
    """Returns a random problem: "dense", "sparse" (distinct ids) or "duplicates" (repeated ids)."""
    random = np.random.RandomState(seed)
    cast = numpy_dtype(dtype)
    shapes = {"matrix": (5, 3), "vector": (4,), "scalar": ()} if kind == "dense" else {}
    tables = {} if kind == "dense" else {"table": (9, 3), "bias": (6,), "cube": (5, 2, 3)}

    def draw(*shape):
        return np.asarray(random.randn(*shape)).astype(cast)

    values = {name: draw(*shape) for name, shape in {**shapes, **tables}.items()}
    gradients = []
    for _ in range(steps):
        step = {name: draw(*shape) for name, shape in shapes.items()}
        for name, shape in tables.items():
            if kind == "sparse":
                ids = random.permutation(shape[0])[: random.randint(1, shape[0])]
            else:
                ids = random.randint(0, shape[0], size=random.randint(2, 8))
                ids[0] = ids[-1]
            step[name] = Rows(draw(len(ids), *shape[1:]), ids.astype(np.int64))
        gradients.append(step)
    return Problem(values, gradients, tuple(tables), dtype, global_step)


def everything(dtype="float32", only=(), steps=24):
    """Returns a problem with dense and sparse gradients; ids are repeated in every other step.

    Args:
      dtype: the dtype of all variables.
      only: the names of the variables to keep; empty for all.
      steps: how many gradients to make.
    """
    dense, distinct, repeated = (
        make(kind, dtype, steps, seed)
        for seed, kind in enumerate(("dense", "sparse", "duplicates"))
    )
    values = {**dense.values, **distinct.values}
    names = [name for name in values if not only or name in only]
    gradients = []
    for number, step in enumerate(dense.gradients):
        step = {**step, **(repeated if number % 2 else distinct).gradients[number]}
        gradients.append({name: step[name] for name in names})
    sparse = tuple(name for name in distinct.sparse if name in names)
    return Problem({name: values[name] for name in names}, gradients, sparse, dtype)
