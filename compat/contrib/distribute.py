"""The strategies of `tf.contrib.distribute` that count GPUs and whose batches are per replica."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import tensorflow as tf

__all__ = ["CollectiveAllReduceStrategy", "MirroredStrategy", "ParameterServerStrategy"]

v1 = tf.compat.v1


class _PerReplica:
    """Gives each replica whole batches of a dataset; TensorFlow's own strategies divide a batch."""

    def _use_batches_per_replica(self):
        extended = self.extended  # pyright: ignore[reportAttributeAccessIssue]
        # Keras reads the attribute, which is a property of the class.
        names = {"_global_batch_size": property(lambda self: False)}
        extended.__class__ = type(type(extended).__name__, (type(extended),), names)

    def make_dataset_iterator(self, dataset: tf.data.Dataset) -> Any:
        """Returns an iterator of which each step reads one batch for each replica."""
        return self.make_input_fn_iterator(  # pyright: ignore[reportAttributeAccessIssue]
            lambda context: dataset
        )


class MirroredStrategy(_PerReplica, v1.distribute.MirroredStrategy):
    """Trains on the GPUs of one machine.

    Args:
      devices: the names of the devices; by default all GPUs, or the CPU if there are none.
      num_gpus: how many GPUs to use; not with `devices`.
      num_gpus_per_worker: another name of `num_gpus`.
      cross_device_ops: how gradients are summed.
      auto_shard_dataset: has no effect, as on 1.15.
      cross_tower_ops: another name of `cross_device_ops`.

    Raises:
      ValueError: two arguments exclude each other.
    """

    def __init__(
        self,
        devices: Optional[Sequence[str]] = None,
        num_gpus: Optional[int] = None,
        num_gpus_per_worker: Optional[int] = None,
        cross_device_ops: Optional[Any] = None,
        auto_shard_dataset: bool = False,
        cross_tower_ops: Optional[Any] = None,
    ):
        counts = [each for each in (num_gpus, num_gpus_per_worker) if each is not None]
        if len(counts) + (devices is not None) > 1:
            raise ValueError("Pass only one of devices, num_gpus and num_gpus_per_worker.")
        if counts:
            devices = [f"/device:GPU:{index}" for index in range(counts[0])] or ["/device:CPU:0"]
        super().__init__(devices, cross_device_ops or cross_tower_ops)
        self._use_batches_per_replica()


class ParameterServerStrategy(
    _PerReplica,
    v1.distribute.experimental.ParameterServerStrategy,
):
    """Trains with parameter servers, which the environment variable TF_CONFIG names.

    Args:
      num_gpus_per_worker: how many GPUs each worker uses; 0 for the CPU.
    """

    def __init__(self, num_gpus_per_worker: int = 0):
        super().__init__(cluster_resolver=_resolver(num_gpus_per_worker))
        self._use_batches_per_replica()


class CollectiveAllReduceStrategy(
    _PerReplica,
    v1.distribute.experimental.MultiWorkerMirroredStrategy,
):
    """Trains on the workers that the environment variable TF_CONFIG names.

    Args:
      num_gpus_per_worker: how many GPUs each worker uses; 0 for the CPU.
      communication: a `tf.distribute.experimental.CollectiveCommunication`; by default AUTO.
    """

    def __init__(
        self,
        num_gpus_per_worker: int = 0,
        communication: Any = tf.distribute.experimental.CollectiveCommunication.AUTO,
    ):
        super().__init__(communication, _resolver(num_gpus_per_worker))
        self._use_batches_per_replica()


def _resolver(num_gpus):
    resolvers = tf.distribute.cluster_resolver
    cluster = resolvers.TFConfigClusterResolver()
    return resolvers.SimpleClusterResolver(
        cluster.cluster_spec(),
        task_type=cluster.task_type,
        task_id=cluster.task_id,
        num_accelerators={"GPU": num_gpus},
        rpc_layer=cluster.rpc_layer,
    )
