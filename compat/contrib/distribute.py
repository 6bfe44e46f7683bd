"""The strategy of `tf.contrib.distribute` whose arguments and batches TensorFlow has changed."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import tensorflow as tf

__all__ = ["MirroredStrategy"]

_Strategy: Any = tf.compat.v1.distribute.MirroredStrategy


class MirroredStrategy(_Strategy):
    """Trains on the GPUs of one machine. Each replica reads its own batch of a dataset.

    Args:
      devices: the names of the devices; by default all GPUs, or the CPU if there are none.
      num_gpus, num_gpus_per_worker: how many GPUs to use, instead of `devices`.
      cross_device_ops, cross_tower_ops: how gradients are summed.
      auto_shard_dataset: has no effect, as in TensorFlow 1.15.

    Raises:
      ValueError: two of `devices`, `num_gpus` and `num_gpus_per_worker` are given.
    """

    def __init__(
        self,
        devices: Optional[Sequence[str]] = None,
        num_gpus: Optional[int] = None,
        num_gpus_per_worker: Optional[int] = None,
        cross_device_ops: Optional[Any] = None,
        auto_shard_dataset: bool = False,
        cross_tower_ops: Optional[Any] = None,
    ) -> None:
        if [devices, num_gpus, num_gpus_per_worker].count(None) < 2:
            raise ValueError("Pass only one of devices, num_gpus and num_gpus_per_worker.")
        if devices is None and (num_gpus, num_gpus_per_worker) != (None, None):
            gpus = range(num_gpus or num_gpus_per_worker or 0)
            devices = [f"/device:GPU:{index}" for index in gpus] or ["/device:CPU:0"]
        super().__init__(devices, cross_device_ops or cross_tower_ops)
        # False lets Keras' `fit` read a batch for each replica.
        is_global = property(lambda extended: False)
        cls = type(self.extended)
        self.extended.__class__ = type(cls.__name__, (cls,), {"_global_batch_size": is_global})

    def make_dataset_iterator(self, dataset: tf.data.Dataset) -> Any:
        """Returns an iterator that reads one batch for each replica in each step."""
        return self.make_input_fn_iterator(lambda context: dataset)
