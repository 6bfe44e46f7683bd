"""Mutations of the code that moves trainings to or from Keras: checkpoints, to_v1, to_plain_keras.

A mutation breaks one function on purpose. Each mutation is a tuple of the fields of
`tests.tools.mutations.Mutation`.
"""

_DATA = """\
for source, target in zip(sources, new_files):
    _rename(source, target)
"""
_INDEX = """\
_rename(merged + checkpoint_paths.INDEX, index)
"""

MOVING = (
    (
        "scopes in the names of slots are ignored",
        "_scopes",
        "best = sorted(scope for scope, count in counts.items() if count == most)",
        'best = [""]',
        ("tests/checkpoints/test_v1_checkpoints_names.py", "-k", "scopes_around_the_optimizer"),
    ),
    (
        "partitions are concatenated in the wrong order",
        "StoredTensor.read",
        "return np.concatenate(values, self.axis)",
        "return np.concatenate(values[::-1], self.axis)",
        ("tests/checkpoints/test_v1_checkpoints_names.py", "-k", "saved_part_by_part"),
    ),
    (
        "the global step is not loaded",
        "KerasState.assign",
        "value = value * batches_a_step(self.optimizer)",
        "return",
        ("tests/checkpoints/test_v1_checkpoints.py", "-k", "decaying_learning_rate"),
    ),
    (
        "damaged data are found after something has been assigned",
        "load_v1_checkpoint",
        "match.verify(checkpoint)",
        "None",
        ("tests/checkpoints/test_v1_checkpoints_refused.py", "-k", "damaged"),
    ),
    (
        "other tensors of the old checkpoint are dropped",
        "save_v1_checkpoint",
        "writer.copy(name, original)",
        "None",
        ("tests/checkpoints/test_v1_checkpoints_out.py", "-k", "comes_along"),
    ),
    (
        "decay counts are read from the first element of each row",
        "_reshaped",
        "counts.reshape(-1)[:rows]",
        "counts.reshape(-1)[:: counts.size // max(len(counts), 1)][:rows]",
        ("tests/checkpoints/test_v1_checkpoints_models.py", "-k", "counts_of_adagrad_decay"),
    ),
    (
        "the global step is not incremented",
        "KerasInV1.apply_gradients",
        "operation = step.assign_add(1, name=scope or None, read_value=False)",
        "operation = step.assign_add(0, name=scope or None, read_value=False)",
        ("tests/keras_in_graphs/test_to_v1.py", "-k", "global_step or what_v1_takes"),
    ),
    (
        "Keras' velocity has the sign of v1's momentum",
        "_velocity",
        "return momentum * momentum.dtype.type(-rate)",
        "return momentum * momentum.dtype.type(rate)",
        (
            "tests/plain_keras/test_plain_training.py",
            "-k",
            "continues_as_in_a_session and Momentum",
        ),
    ),
    (
        "a checkpoint's index is written before its data",
        "CheckpointWriter._publish",
        _DATA + _INDEX,
        _INDEX + _DATA,
        ("tests/checkpoints/test_checkpoint_writer.py", "-k", "BeingKilled"),
    ),
)
