"""A training of either Keras that goes on from a checkpoint."""


def assert_goes_on(training, path, unstopped):
    """Restores a checkpoint and trains as the run that never stopped did."""
    status = training.checkpoint.restore(path)
    status.assert_existing_objects_matched()
    training.steps(4, 8)
    training.assert_same(unstopped)
    status.assert_existing_objects_matched()
    status.assert_consumed()
