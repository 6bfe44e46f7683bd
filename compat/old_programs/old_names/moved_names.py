"""Advice on where old names live now, and the tables of modules that moved."""

from . import table

# batch_norm, smart_cond and others in tf_slim use names that newer TensorFlows have removed.
SLIM_NEEDS = (
    "From TensorFlow 2.11 on, call legacy_opt.compat.patch_tensorflow() first (`legacy-opt run` "
    "does)."
)
SLIM = f"The package tf_slim has it (pip install tf-slim). {SLIM_NEEDS}"
_NEEDS_KERAS_2 = (
    "From TensorFlow 2.16 on it needs the tf-keras of TensorFlow's version (pip install --no-deps "
    '"tf-keras==2.21.*" for TensorFlow 2.21), and the environment variable TF_USE_LEGACY_KERAS=1, '
    "which `legacy-opt run` sets."
)
_TWO_PACKAGES = (
    "From TensorFlow 2.16 on it needs two packages: pip install --no-deps "
    'tensorflow-estimator==2.15.0 "tf-keras==2.21.*" (the tf-keras of TensorFlow\'s version).'
)
# Modules of `tf.compat.v1` that need separately installed packages in TensorFlow 2.16 and newer.
NEED_PACKAGES = {
    "tf.estimator": _TWO_PACKAGES,
    "tf.layers": _NEEDS_KERAS_2,
    "tf.nn.rnn_cell": _NEEDS_KERAS_2,
}
KERAS = "tf.compat.v1.keras"
KERAS_OPTIMIZERS = "tf.python.keras.optimizer_v1"
# On the modules `KERAS` and `KERAS_OPTIMIZERS`: if tf.keras is Keras 3, tf_keras has them.
_IN_KERAS = (
    "It is Keras 2 (TensorFlow 2.16+: pip install --no-deps tf-keras, of its version; set "
    "TF_USE_LEGACY_KERAS=1)."
)
ESTIMATOR = "legacy_opt.compat.estimator"
# Pairs (new module, advice on the new names in it). A row with advice overrides this advice.
ADVICE = (
    ("tf_slim", SLIM),
    (ESTIMATOR, _TWO_PACKAGES),
    ("tensorflow_estimator", f"{_TWO_PACKAGES} There, import {ESTIMATOR}.Estimator first."),
    (KERAS, _IN_KERAS),
    (KERAS_OPTIMIZERS, _IN_KERAS),
    ("tf.compat.v1.layers", _NEEDS_KERAS_2),
    ("tf.compat.v1.nn.rnn_cell", _NEEDS_KERAS_2),
    ("tensorboard", "The package tensorboard has it (pip install tensorboard)."),
    (
        "tf.python.ops.gen_training_ops",
        "It is private: tf.raw_ops has these operations, with named arguments.",
    ),
)
_OLD_MODULES = [(row.modules[0], row) for row in table.rows("modules.txt")]
# Modules whose names are in another module now, except for names with a row: {old: new}.
MODULES = {old: row.now for old, row in _OLD_MODULES if row.now}
# The advice on all names of removed modules, except for names with a row: {module: advice}.
REMOVED_MODULES = {old: row.advice for old, row in _OLD_MODULES if row.advice}
# {private module: public module}
DEFINED_IN = {
    private: row.now for row in table.rows("private_modules.txt") for private, _ in row.full_names()
}
