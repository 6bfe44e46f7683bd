"""Parts of `tf.contrib.learn`."""

from __future__ import annotations

from typing import Any

from . import datasets, preprocessing

__all__ = ["ModeKeys", "datasets", "preprocessing"]


class ModeKeys:
    """The modes of a model function."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"

    @classmethod
    def validate(cls, key: Any) -> None:
        """Raises a ValueError unless `key` is a mode."""
        if key not in (cls.TRAIN, cls.EVAL, cls.INFER):
            raise ValueError(f"Invalid mode {key}.")
