"""Names of TensorFlow 1 that the `tf.compat.v1` of newer TensorFlows lacks, with advice.

A row of `NAMES` has the form of the rows in `table.py`: old module, old names, new name (None,
because there is none), advice. A test compares the rows with a list of all public names of
TensorFlow 1.15, except Keras.
"""

_OPTIMIZERS_OF_TPUS = "ADAM Adadelta Adagrad FTRL Momentum Proximal_Adagrad RMS_Prop"
_OPERATIONS_OF_TPUS = " ".join(
    f"{verb}TPUEmbedding{name.replace('_', '')}ParametersGradAccumDebug "
    f"{verb.lower()}_tpu_embedding_{name.lower()}_parameters_grad_accum_debug"
    for verb in ("Load", "Retrieve")
    for name in _OPTIMIZERS_OF_TPUS.split()
)
NAMES = (
    (
        "tf.contrib.learn.preprocessing",
        "ByteProcessor",
        None,
        "Use numpy.frombuffer(text.encode(), numpy.uint8).",
    ),
    (
        "tf.contrib.rnn",
        "stack_bidirectional_rnn",
        None,
        "Call tf.nn.static_bidirectional_rnn for each layer, or stack_bidirectional_dynamic_rnn.",
    ),
    ("tf.config", "experimental_list_devices", None, "Use tf.config.list_logical_devices."),
    (
        "tf.data.experimental tf.contrib.data",
        "CheckpointInputPipelineHook",
        None,
        "Save the iterator with a Saver: tf.data.experimental.make_saveable_from_iterator.",
    ),
    (
        "tf.data.experimental",
        "MapVectorizationOptions",
        None,
        "Delete it: tf.data no longer has this optimization.",
    ),
    (
        "tf.data.experimental",
        "StatsAggregator StatsOptions bytes_produced_stats latency_stats",
        None,
        "Use TensorFlow's profiler, which measures input pipelines.",
    ),
    (
        "tf.estimator tf.python.estimator.estimator_lib",
        "BoostedTreesClassifier BoostedTreesEstimator BoostedTreesRegressor",
        None,
        "TensorFlow Decision Forests does that.",
    ),
    (
        "tf.lite.experimental",
        "get_potentially_supported_ops",
        None,
        "Use tf.lite.experimental.Analyzer of TensorFlow 2.",
    ),
    (
        "tf.raw_ops tf.contrib.tpu.python.ops.tpu_ops",
        "CompareAndBitpack " + _OPERATIONS_OF_TPUS,
        None,
        "TensorFlow 2 no longer has this operation.",
    ),
    (
        "tf.tpu.experimental",
        "AdagradParameters AdamParameters StochasticGradientDescentParameters",
        None,
        "It was for TPUEstimator, which TensorFlow 2.16 has removed.",
    ),
)

# Its batch_norm, smart_cond and functions of gradients use names that newer TensorFlows removed.
SLIM_NEEDS = (
    "From TensorFlow 2.11 on, call legacy_opt.compat.patch_tensorflow() first (`legacy-opt run` "
    "does)."
)
SLIM = f"The package tf_slim has it (pip install tf-slim). {SLIM_NEEDS}"
_ADDONS = "TensorFlow Addons, whose last release is for TensorFlow 2.15 and Python 3.11."
_DATASETS = "scikit-learn and tf.keras.datasets load such data."
# Modules that were removed. An entry applies to all names of the module, except for names with a
# row.
MODULES = {
    "tf.contrib": "TensorFlow 2 has no tf.contrib.",
    "tf.contrib.bayesflow": "TensorFlow Probability has some of it.",
    "tf.contrib.boosted_trees": "TensorFlow Decision Forests does that.",
    "tf.contrib.cluster_resolver": "It moved to tf.distribute.cluster_resolver.",
    "tf.contrib.constrained_optimization": "tensorflow_constrained_optimization does that.",
    "tf.contrib.crf": "legacy_opt.compat.contrib.crf has its functions; tfa.text has one of its "
    "cells, in " + _ADDONS,
    "tf.contrib.cudnn_rnn": "tf.keras.layers.LSTM and GRU use cuDNN by themselves.",
    "tf.contrib.data": "Most of it moved to tf.data and tf.data.experimental.",
    "tf.contrib.distribute": "Some of it moved to tf.distribute and tf.distribute.experimental.",
    "tf.contrib.distributions": "TensorFlow Probability has most of it.",
    "tf.contrib.eager": "Some of it moved to tf and tf.train.",
    "tf.contrib.estimator": "Some of it is in legacy_opt.compat.estimator and its module "
    "experimental (`legacy-opt docs estimators`).",
    "tf.contrib.feature_column": "Most of it moved to tf.feature_column.",
    "tf.contrib.framework": "tf_slim has most of it (pip install tf-slim); the checkpoint "
    "readers moved to tf.train, nest to tf.nest.",
    "tf.contrib.gan": "The package tensorflow-gan has most of it.",
    "tf.contrib.image": "tfa.image has some of it, in " + _ADDONS,
    "tf.contrib.kfac": "The package kfac has most of it.",
    "tf.contrib.layers": f"tf_slim has most of it (pip install tf-slim). {SLIM_NEEDS}",
    "tf.contrib.learn": "legacy_opt.compat.estimator has its common Estimators, with other "
    "arguments (`legacy-opt docs estimators`).",
    "tf.contrib.learn.datasets": _DATASETS,
    "tf.contrib.learn.python.learn.datasets": _DATASETS,
    "tf.contrib.legacy_seq2seq": "legacy_opt.compat.contrib.legacy_seq2seq has most of it: encode "
    "with tf.nn.static_rnn, and decode with its rnn_decoder.",
    "tf.contrib.linear_optimizer": "tf.train.FtrlOptimizer trains such models.",
    "tf.contrib.lite": "Most of it moved to tf.lite.",
    "tf.contrib.lookup": "tf.lookup and tensorflow.python.ops.lookup_ops have most of it.",
    "tf.contrib.losses": "Most of it moved to tf.losses.",
    "tf.contrib.metrics": "tf_slim.metrics has most of it (pip install tf-slim).",
    "tf.contrib.model_pruning": "TensorFlow Model Optimization does that.",
    "tf.contrib.opt": "`legacy-opt docs from_to` lists the replacement of each optimizer.",
    "tf.contrib.optimizer_v2": "Use the optimizers of tf.train; their slots have other names.",
    "tf.contrib.predictor": "Load the model with tf.saved_model.load.",
    "tf.contrib.quantize": "TensorFlow Model Optimization does that.",
    "tf.contrib.rnn": "legacy_opt.compat.contrib.rnn and tf.nn.rnn_cell have the common cells; "
    "tfa.rnn has some others, in " + _ADDONS,
    "tf.contrib.seq2seq": "legacy_opt.compat.contrib.seq2seq has the common names; tfa.seq2seq has "
    "most others (a Helper is a Sampler there), in " + _ADDONS,
    "tf.contrib.slim": SLIM,
    "tf.contrib.summary": "Most of it moved to tf.compat.v2.summary.",
    "tf.contrib.tensor_forest": "TensorFlow Decision Forests does that.",
    "tf.contrib.tensorboard": "The package tensorboard has it (pip install tensorboard): "
    "tensorboard.plugins.projector.",
    "tf.contrib.tpu": "Some of it moved to tf.compat.v1.tpu and legacy_opt.compat.estimator.tpu "
    "(`legacy-opt docs estimators`).",
    "tf.contrib.training": "tf_slim.training and tf_slim.evaluation have some of it (pip install "
    "tf-slim).",
    "tf.contrib.util": "Use tf.make_tensor_proto, tf.make_ndarray, and tf.get_static_value in "
    "place of constant_value.",
    # Modules of `tf` itself.
    "tf.examples": "TensorFlow 2 has no tf.examples. tf.keras.datasets.mnist.load_data() loads "
    "MNIST.",
    "tf.lite.experimental.nn": "tf.lite.TFLiteConverter converts tf.keras.layers.LSTM and RNN.",
    "tf.pywrap_tensorflow": "It was private to TensorFlow. Its NewCheckpointReader is "
    "tf.train.NewCheckpointReader.",
}

_NEEDS_KERAS_2 = (
    "From TensorFlow 2.16 on it needs the tf-keras of TensorFlow's version (pip install --no-deps "
    '"tf-keras==2.21.*" for TensorFlow 2.21), and the environment variable TF_USE_LEGACY_KERAS=1, '
    "which `legacy-opt run` sets."
)
# Modules of `tf.compat.v1` that need separately installed packages in TensorFlow 2.16 and newer.
NEED_PACKAGES = {
    "tf.estimator": "From TensorFlow 2.16 on it needs two packages: pip install --no-deps "
    'tensorflow-estimator==2.15.0 "tf-keras==2.21.*" (the tf-keras of TensorFlow\'s version).',
    "tf.layers": _NEEDS_KERAS_2,
    "tf.nn.rnn_cell": _NEEDS_KERAS_2,
}
