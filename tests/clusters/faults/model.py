"""The form of a model that tests kill."""

from typing import Any, Callable, NamedTuple


class Model(NamedTuple):
    """What a training needs of its graph.

    Attributes:
        feed: a function that returns the feed_dict for the batch with a number.
        train_op: trains with a batch.
        position: the variables from which `training.batch_of` computes the number of trained
            batches.
        every: the number of batches between checkpoints.
    """

    feed: Callable
    train_op: Any
    position: list
    every: int
