"""The batches of `tf.contrib.training` whose examples have similar lengths."""

from __future__ import annotations

import functools
from typing import Any, Iterable, Optional, Sequence, Tuple

import tensorflow as tf

v1 = tf.compat.v1


def bucket_by_sequence_length(
    input_length: Any,
    tensors: Any,
    batch_size: Any,
    bucket_boundaries: Sequence[int],
    num_threads: int = 1,
    capacity: int = 32,
    bucket_capacities: Optional[Sequence[int]] = None,
    shapes: Optional[Sequence[Any]] = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    keep_input: Any = True,
    shared_name: Optional[str] = None,
    name: Optional[str] = None,
) -> Tuple[tf.Tensor, Any]:
    """Returns the lengths and the tensors of the next batch, which queue runners make.

    The tensors `input_length` (an int32 scalar) and `tensors` (a list or dict) are one example. Its
    length chooses its bucket: `bucket_boundaries` are the smallest lengths of the second and later
    buckets. `batch_size` may be a list with a number for each bucket. With `dynamic_pad`, zeros or
    empty strings are added at the end of tensors, so that all in a batch have the same shape.
    """
    count = len(bucket_boundaries) + 1
    if count == 1 or list(bucket_boundaries) != sorted(set(bucket_boundaries)):
        raise ValueError(f"bucket_boundaries must be increasing numbers, got {bucket_boundaries}")
    sizes = batch_size if isinstance(batch_size, (list, tuple)) else [batch_size] * count
    capacities = bucket_capacities or [capacity] * count
    if not len(sizes) == len(capacities) == count:
        raise ValueError(f"batch_size and bucket_capacities need {count} numbers, one a bucket")
    with v1.name_scope(name, "bucket_by_sequence_length"):
        length = tf.convert_to_tensor(input_length, tf.int32, name="input_length")
        example = [length, *map(tf.convert_to_tensor, tf.nest.flatten(tensors))]
        types = [each.dtype for each in example]
        if shapes is None:
            queue_shapes = [each.shape for each in example]
        else:
            queue_shapes = [[], *shapes]  # the length is a scalar
        queue_class = v1.PaddingFIFOQueue if dynamic_pad else v1.FIFOQueue
        create = functools.partial(queue_class, dtypes=types, shapes=queue_shapes)
        queues = [
            create(each, shared_name=shared_name and f"{shared_name}_{index}")
            for index, each in enumerate(capacities)
        ]
        has_one_size = not allow_smaller_final_batch and sizes is not batch_size
        static_size = tf.get_static_value(sizes[0]) if has_one_size else None
        shape = tf.TensorShape([static_size])
        batch_shapes = [shape.concatenate(each) for each in queues[0].shapes]
        batches = v1.PaddingFIFOQueue(capacity, types, batch_shapes, shared_name=shared_name)
        bucket = tf.reduce_sum(tf.cast(length >= list(bucket_boundaries), tf.int32))
        bucket = tf.where(keep_input, bucket, -1)  # no bucket has the number -1
        enqueues = enumerate(functools.partial(each.enqueue, example) for each in queues)
        into_bucket = tf.group(
            *(v1.cond(tf.equal(bucket, index), enqueue, tf.no_op) for index, enqueue in enqueues)
        )
        read = "dequeue_up_to" if allow_smaller_final_batch else "dequeue_many"
        to_batches = [
            batches.enqueue(getattr(each, read)(size)) for each, size in zip(queues, sizes)
        ]
        _run(queues[0], to_batches, closed=[batches])
        _run(batches, [into_bucket] * num_threads, closed=queues)
        lengths, *values = batches.dequeue()
    return lengths, tf.nest.pack_sequence_as(tensors, values)


def _run(queue: Any, operations: Sequence[Any], closed: Iterable[Any]):
    """Adds a runner of operations for a queue. At their end, the queues `closed` are closed."""
    ends = tf.errors.OutOfRangeError, tf.errors.CancelledError
    close = tf.group(*(each.close() for each in closed))
    cancel = tf.group(*(each.close(cancel_pending_enqueues=True) for each in closed))
    runner = v1.train.QueueRunner(queue, operations, close, cancel, ends)
    v1.train.add_queue_runner(runner)
