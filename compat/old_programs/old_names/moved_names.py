"""Names of tf.contrib and private names of TensorFlow 1 that live elsewhere now.

The rows of `NAMES` have the form of the rows in `table.py`. `MODULES` maps modules to the modules
that have their names. Each target is the same object on TensorFlow 1.15, or its maintained copy in
the package tf_slim (tests compare them).
"""

from .removed_names import NEED_PACKAGES, SLIM

KERAS = "tf.compat.v1.keras"
KERAS_OPTIMIZERS = "tf.python.keras.optimizer_v1"
# If tf.keras is Keras 3, both are in tf_keras.
_IN_KERAS = (
    "It is Keras 2 (TensorFlow 2.16+: pip install --no-deps tf-keras, of its version; set "
    "TF_USE_LEGACY_KERAS=1)."
)
_OTHER_DEFAULTS = "tf.distribute.cluster_resolver has it with other defaults."
_GONE = "There is no replacement."
_TRAINING_OPS = "tf.python.ops.gen_training_ops"
_TWO_PACKAGES = NEED_PACKAGES["tf.estimator"]
ESTIMATOR = "legacy_opt.compat.estimator"
# Advice for all new names in these modules, unless their rows have other advice.
ADVICE = (
    ("tf_slim", SLIM),
    (ESTIMATOR, _TWO_PACKAGES),
    ("tensorflow_estimator", f"{_TWO_PACKAGES} There, import {ESTIMATOR}.Estimator first."),
    (KERAS, _IN_KERAS),
    (KERAS_OPTIMIZERS, _IN_KERAS),
    ("tf.compat.v1.layers", NEED_PACKAGES["tf.layers"]),
    ("tf.compat.v1.nn.rnn_cell", NEED_PACKAGES["tf.nn.rnn_cell"]),
    ("tensorboard", "The package tensorboard has it (pip install tensorboard)."),
    (_TRAINING_OPS, "It is private: tf.raw_ops has these operations, with named arguments."),
)
_TRAIN = "tf.compat.v1.train"
_METRIC_LEARNING = "tf_slim.losses.metric_learning"
_BACKPROP = "tf.python.eager.backprop"
_ESTIMATOR = "tensorflow_estimator.python.estimator"
_MNIST = "legacy_opt.compat.contrib.learn.datasets.mnist"
# Modules of which each star import gets the names of the others.
_LAYERS = "tf.contrib.layers tf.contrib.layers.python.layers tf.contrib.slim"
_NEWER_COLUMNS = "tf.feature_column has newer ones, which tf.feature_column.input_layer takes."

NAMES = (
    ("tf.contrib.checkpoint", "CheckpointManager", _TRAIN),
    ("tf.contrib.checkpoint", "PythonStateWrapper=PythonState", _TRAIN + ".experimental"),
    ("tf.contrib.cluster_resolver", "SlurmClusterResolver", None, _OTHER_DEFAULTS),
    (
        "tf.contrib.cluster_resolver",
        "UnionClusterResolver=UnionResolver",
        "tf.compat.v1.distribute.cluster_resolver",
    ),
    (
        "tf.contrib.compiler.jit",
        "experimental_jit_scope=jit_scope",
        "tf.compat.v1.xla.experimental",
    ),
    ("tf.contrib.compiler.xla", "compile", "tf.compat.v1.xla.experimental"),
    (
        "tf.contrib.data",
        "sloppy_interleave sliding_window_batch reduce_dataset LMDBDataset read_batch_features",
        None,
        "Use the methods of tf.data.Dataset and the functions of tf.data.experimental.",
    ),
    (
        "tf.contrib.data",
        "batch_and_drop_remainder padded_batch_and_drop_remainder",
        None,
        "Call the dataset's method batch or padded_batch with drop_remainder=True.",
    ),
    ("tf.contrib.data", "assert_element_shape", None, "Call tf.ensure_shape in Dataset.map."),
    (
        "tf.contrib.distribute",
        "CrossDeviceOps DistributionStrategy=Strategy OneDeviceStrategy ReplicaContext "
        "get_distribution_strategy=get_strategy get_loss_reduction get_replica_context "
        "get_strategy has_distribution_strategy=has_strategy has_strategy "
        "in_cross_replica_context",
        "tf.compat.v1.distribute",
    ),
    ("tf.contrib.distribute", "initialize_tpu_system", "tf.compat.v1.tpu.experimental"),
    ("tf.contrib.distribute", "TPUStrategy", "tf.compat.v1.distribute.experimental"),
    (
        "tf.contrib.distribute",
        "CollectiveAllReduceStrategy ParameterServerStrategy",
        None,
        "tf.distribute has it with other arguments, and divides batches among replicas.",
    ),
    (
        "tf.contrib.distributions",
        "Bernoulli Beta Categorical Dirichlet DirichletMultinomial Distribution Exponential "
        "FULLY_REPARAMETERIZED Gamma Laplace Multinomial NOT_REPARAMETERIZED Normal RegisterKL "
        "ReparameterizationType StudentT Uniform kl_divergence",
        "tf.compat.v1.distributions",
    ),
    (
        "tf.contrib.eager",
        "GradientTape TensorSpec custom_gradient enable_eager_execution executing_eagerly function "
        "in_eager_mode=executing_eagerly py_func=py_function",
        "tf.compat.v1",
    ),
    ("tf.contrib.eager", "Checkpoint", _TRAIN),
    ("tf.contrib.eager", "Iterator=OwnedIterator", "tf.python.data.ops.iterator_ops"),
    ("tf.contrib.eager", "Variable=ResourceVariable", "tf.python.ops.resource_variable_ops"),
    (
        "tf.contrib.eager",
        "implicit_gradients=implicit_grad implicit_value_and_gradients=implicit_val_and_grad "
        "gradients_function value_and_gradients_function=val_and_grad_function",
        _BACKPROP,
    ),
    (
        "tf.contrib.estimator",
        "InMemoryEvaluatorHook build_raw_supervised_input_receiver_fn dnn_logit_fn_builder "
        "linear_logit_fn_builder make_early_stopping_hook make_stop_at_checkpoint_step_hook "
        "stop_if_higher_hook stop_if_lower_hook stop_if_no_decrease_hook stop_if_no_increase_hook",
        ESTIMATOR + ".experimental",
    ),
    (
        "tf.contrib.framework",
        "TensorSpec argsort assert_same_float_dtype assert_scalar "
        "convert_to_tensor_or_sparse_tensor is_tensor sort",
        "tf.compat.v1",
    ),
    (
        "tf.contrib.framework",
        "deprecated deprecated_arg_values deprecated_args",
        "tf.python.util.deprecation",
    ),
    ("tf.contrib.framework.python.ops", "argsort sort", "tf.compat.v1"),
    ("tf.contrib.framework.python.ops", "arg_scope", "tf_slim"),  # a module, too
    ("tf.contrib.framework.python.ops", "gen_variable_ops prettyprint_ops", None, _GONE),
    ("tf.contrib.framework.python.ops.variables", "zero_initializer", None, _GONE),
    ("tf.contrib.framework", "smart_cond", "tf.python.framework.smart_cond"),
    ("tf.contrib.framework", "nest", "tf.python.util"),
    (
        "tf.contrib.framework tf.contrib.framework.python.ops",
        """
        BoundedTensorSpec RecordInput assert_scalar_int convolutional_delta_orthogonal
        convolutional_orthogonal_1d convolutional_orthogonal_2d convolutional_orthogonal_3d
        fuse_op get_graph_from_inputs get_name_scope get_placeholders
        load_and_remap_matrix_initializer load_embedding_initializer
        load_linear_multiclass_bias_initializer load_variable_slot_initializer
        prepend_name_scope print_op reduce_sum_n remove_squeezable_dimensions smart_case
        smart_constant_value strip_name_scope with_same_shape with_shape
        zero_initializer
        """,
        None,
        _GONE,
    ),
    (
        "tf.contrib.keras.optimizers",
        "Adadelta Adagrad Adam Adamax Nadam Optimizer RMSprop SGD",
        KERAS_OPTIMIZERS,
    ),
    ("tf.contrib.keras.metrics", "cosine_similarity", None, _GONE),
    ("tf.contrib.keras.wrappers", "scikit_learn", None, "The package scikeras has it."),
    ("tf.contrib.keras.utils", "HDF5Matrix convert_all_kernels_in_model", None, _GONE),
    ("tf.contrib.keras.utils", "deserialize_keras_object serialize_keras_object", None, _GONE),
    (
        _LAYERS,
        """
        DataFrameColumn ProblemType SPARSE_FEATURE_CROSS_DEFAULT_HASH_KEY binary_svm_target
        bow_encoder bucketized_column check_feature_columns create_feature_spec_for_parsing
        crossed_column embedding_column embedding_lookup_sparse_with_distributed_aggregation
        embedding_lookup_unique get_default_binary_metrics_for_eval infer_real_valued_columns
        input_from_feature_columns joint_weighted_sum_from_feature_columns make_all
        make_place_holder_tensors_for_base_features multi_class_target one_hot_column
        parse_feature_columns_from_examples parse_feature_columns_from_sequence_examples
        real_valued_column regression_target scattered_embedding_column scattered_embedding_lookup
        scattered_embedding_lookup_sparse sequence_input_from_feature_columns
        shared_embedding_columns sparse_column_with_hash_bucket
        sparse_column_with_integerized_feature sparse_column_with_keys
        sparse_column_with_vocabulary_file sparse_feature_cross transform_features
        weighted_sparse_column weighted_sum_from_feature_columns
        fc feature_column feature_column_ops target_column
        """,
        None,
        _NEWER_COLUMNS,
    ),
    ("tf.contrib.layers", "safe_embedding_lookup_sparse", "tf.compat.v1.nn"),
    (
        "tf.contrib.layers.python.layers tf.contrib.slim",
        "deprecated deprecated_arg_values embed_sequence safe_embedding_lookup_sparse",
        None,
        "Import it from tf.contrib.framework or tf.contrib.layers.",
    ),
    (_LAYERS, "InputLayer experimental zero_initializer", None, _GONE),
    ("tf.contrib.layers.python", "ops", None, _GONE),
    ("tf.contrib.layers", "summaries", "tf_slim.layers"),
    (
        "tf.contrib.layers.python.layers",
        "initializers layers normalization regularizers rev_block_lib summaries utils",
        "tf_slim.layers",
    ),
    (
        "tf.contrib.feature_column",
        "sequence_input_layer",
        None,
        "The layer tf.keras.experimental.SequenceFeatures of Keras 2 does that (TensorFlow 2.16+: "
        "pip install --no-deps tf-keras, of its version, and set TF_USE_LEGACY_KERAS=1).",
    ),
    (
        "tf.contrib.feature_column",
        "sequence_categorical_column_with_hash_bucket sequence_categorical_column_with_identity "
        "sequence_categorical_column_with_vocabulary_file "
        "sequence_categorical_column_with_vocabulary_list sequence_numeric_column",
        "tf.compat.v1.feature_column",
    ),
    (
        "tf.contrib.learn",
        "infer_real_valued_columns_from_input infer_real_valued_columns_from_input_fn",
        None,
        "Call tf.feature_column.numeric_column for each feature.",
    ),
    (
        "tf.contrib.learn.python.learn.basic_session_run_hooks",
        "CheckpointSaverHook LoggingTensorHook NanLossDuringTrainingError NanTensorHook "
        "StepCounterHook StopAtStepHook SummarySaverHook",
        _TRAIN,
    ),
    (
        "tf.contrib.lookup",
        "KeyValueTensorInitializer TextFileIndex TextFileInitializer",
        "tf.compat.v1.lookup",
    ),
    (
        "tf.contrib.lookup",
        "MutableDenseHashTable=DenseHashTable",
        "tf.compat.v1.lookup.experimental",
    ),
    (
        "tf.contrib.lookup",
        "FastHashSpec HasherSpec IdTableWithHashBuckets InitializableLookupTableBase "
        "LookupInterface MutableHashTable StrongHashSpec TableInitializerBase "
        "TextFileIdTableInitializer TextFileStringTableInitializer index_table_from_file "
        "index_to_string_table_from_file",
        "tf.python.ops.lookup_ops",
    ),
    (
        "tf.contrib.lookup",
        "index_to_string string_to_index string_to_index_table_from_file "
        "string_to_index_table_from_tensor",
        None,
        "Make a table with index_table_from_file, index_table_from_tensor or "
        "index_to_string_table_from_tensor.",
    ),
    (
        "tf.contrib.metrics",
        "set_difference=difference set_intersection=intersection set_size set_union=union",
        "tf.compat.v1.sets",
    ),
    ("tf.contrib.metrics", "confusion_matrix", "tf.compat.v1"),
    (
        "tf.contrib.slim.metrics",
        "confusion_matrix set_difference set_intersection set_size set_union",
        None,
        "Import it from tf.contrib.metrics.",
    ),
    ("tf.contrib.nn", "conv1d_transpose", "tf.compat.v1.nn"),
    (
        "tf.contrib.rnn",
        "static_bidirectional_rnn static_rnn static_state_saving_rnn",
        "tf.compat.v1.nn",
    ),
    (
        "tf.contrib.rnn",
        "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell LSTMStateTuple "
        "MultiRNNCell RNNCell ResidualWrapper",
        "tf.compat.v1.nn.rnn_cell",
    ),
    ("tf.contrib.staging", "StagingArea", "tf.python.ops.data_flow_ops"),
    (
        "tf.contrib.stateless",
        "stateless_multinomial stateless_random_normal=stateless_normal "
        "stateless_random_uniform=stateless_uniform stateless_truncated_normal",
        "tf.compat.v1.random",
    ),
    ("tf.contrib.summary", "all_summary_ops=all_v2_summary_ops initialize", "tf.compat.v1.summary"),
    ("tf.contrib.summary", "create_db_writer", None, _GONE),
    ("tf.contrib.summary", "graph", None, "Use tf.summary.FileWriter(folder, graph)."),
    ("tf.contrib.tensorboard.plugins", "projector", "tensorboard.plugins"),
    (
        "tf.contrib.tpu",
        "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec",
        ESTIMATOR + ".tpu",
    ),
    (
        "tf.contrib.tpu.python.tpu",
        "async_checkpoint keras_support keras_tpu_variables",
        None,
        _GONE,
    ),
    ("tf.contrib.tpu", "DeviceAssignment", "tf.compat.v1.tpu.experimental"),
    ("tf.contrib.tpu", "Topology", "tf.python.tpu.topology"),
    ("tf.contrib.tpu", "device_assignment", "tf.python.tpu.device_assignment"),
    ("tf.contrib.tpu", "repeat while_loop", "tf.python.tpu.training_loop"),
    (
        "tf.contrib.tpu",
        "batch_parallel bfloat16_scope core cross_replica_sum initialize_system "
        "outside_compilation replicate rewrite shard shutdown_system",
        "tf.compat.v1.tpu",
    ),
    (
        "tf.contrib.training",
        "StopAfterNEvalsHook SummaryAtEndHook checkpoints_iterator evaluate_repeatedly "
        "get_or_create_eval_step wait_for_new_checkpoint",
        "tf_slim.evaluation",
    ),
    ("tf.contrib.training", "train", "tf_slim.training"),
    ("tf.contrib.training.HParams", "from_proto to_proto", None, "Use parse_json and to_json."),
    (
        "tf.contrib.training",
        "bucket",
        None,
        "Use tf.data.experimental.bucket_by_sequence_length, which needs no queues.",
    ),
    (
        "tf.contrib.util",
        "constant_value=get_static_value make_ndarray make_tensor_proto",
        "tf.compat.v1",
    ),
    # Private names of TensorFlow 1, by their modules.
    (
        "tf.python.distribute.distribution_strategy_context "
        "tf.python.training.distribution_strategy_context",
        "get_cross_replica_context get_distribution_strategy get_strategy_and_replica_context "
        "has_distribution_strategy",
        None,
        "Use tf.distribute.get_strategy and tf.distribute.has_strategy.",
    ),
    (
        "tf.python.framework.config",
        "get_virtual_device_configuration set_virtual_device_configuration",
        "tf.compat.v1.config.experimental",
    ),
    ("tf.python.framework.graph_util", "convert_variables_to_constants", "tf.compat.v1.graph_util"),
    (
        "tf.python.framework.graph_util_impl",
        "convert_variables_to_constants",
        "tf.compat.v1.graph_util",
    ),
    (
        "tf.python.framework.ops",
        "IndexedSlices Tensor convert_to_tensor_or_indexed_slices disable_tensor_equality "
        "enable_tensor_equality register_tensor_conversion_function",
        "tf.compat.v1",
    ),
    (
        "tf.python.layers.normalization",
        "BatchNorm=BatchNormalization BatchNormalization batch_norm=batch_normalization "
        "batch_normalization",
        "tf.compat.v1.layers",
    ),
    ("tf.python.ops.array_ops", "stack unstack", "tf.compat.v1"),
    ("tf.python.ops.control_flow_ops", "Assert case cond switch_case while_loop", "tf.compat.v1"),
    ("tf.python.ops.math_ops", "bessel_i0e bessel_i1e", "tf.compat.v1.math"),
    ("tf.python.ops.math_ops", "bincount_v1=bincount", "tf.compat.v1"),
    (
        "tf.python.ops.nn",
        "bidirectional_dynamic_rnn dynamic_rnn raw_rnn static_rnn static_state_saving_rnn",
        "tf.compat.v1.nn",
    ),
    ("tf.python.ops.nn_impl", "compute_average_loss scale_regularization_loss", "tf.compat.v1.nn"),
    ("tf.python.ops.random_ops", "random_crop", "tf.compat.v1"),
    (
        "tf.python.ops.standard_ops",
        "is_variable_initialized random_crop stack unstack",
        "tf.compat.v1",
    ),
    (
        "tf.python.ops.variable_scope",
        "variable=Variable disable_resource_variables enable_resource_variables "
        "resource_variables_enabled",
        "tf.compat.v1",
    ),
    ("tf.python.ops.variables", "VariableV1=Variable is_variable_initialized", "tf.compat.v1"),
    ("tf.python.pywrap_tensorflow", "NewCheckpointReader", _TRAIN),
    (
        "tf.python.pywrap_tensorflow",
        "EventsWriter",
        "tf.python.summary.writer.event_file_writer._pywrap_events_writer",
        "Its method FileName returns a str.",
    ),
    ("tf.pywrap_tensorflow", "NewCheckpointReader", _TRAIN),
    ("tf.python.training.tracking.python_state", "PythonState", _TRAIN + ".experimental"),
    ("tf.python.training.tracking.util", "CheckpointV1=Checkpoint", _TRAIN),
    ("tf.python.util.nest", "is_sequence=is_nested", "tf.python.util.nest"),
    # Names that had been removed before 1.15.
    ("tf.contrib.hooks", "ProfilerHook", _TRAIN),
    (
        "tf.contrib.nccl",
        "all_max all_min all_prod all_sum broadcast reduce_sum",
        "tf.python.ops.nccl_ops",
    ),
    ("tf", "histogram_summary=histogram", "tf.compat.v1.summary", "Its first argument is a tag."),
)

# Modules whose names are in another module now, except for names with a row.
MODULES = {
    "tf.contrib.cluster_resolver": "tf.compat.v1.distribute.cluster_resolver",
    "tf.contrib.data": "tf.compat.v1.data.experimental",
    "tf.contrib.estimator.python.estimator.early_stopping": _ESTIMATOR + ".early_stopping",
    "tf.contrib.framework": "tf_slim",
    "tf.contrib.framework.python.ops": "tf_slim",
    "tf.contrib.framework.python.ops.arg_scope": "tf_slim.ops.arg_scope",
    "tf.contrib.framework.python.ops.ops": "tf_slim.ops.framework_ops",
    "tf.contrib.framework.python.ops.variables": "tf_slim.ops.variables",
    "tf.contrib.keras": KERAS,
    "tf.contrib.keras.callbacks": KERAS + ".callbacks",
    "tf.contrib.keras.layers": KERAS + ".layers",
    "tf.contrib.keras.models": KERAS + ".models",
    "tf.contrib.keras.optimizers": KERAS + ".optimizers",
    "tf.contrib.keras.preprocessing.image": KERAS + ".preprocessing.image",
    "tf.contrib.keras.utils": KERAS + ".utils",
    "tf.contrib.layers": "tf_slim",
    "tf.contrib.layers.python.layers": "tf_slim",
    "tf.contrib.learn.python.learn.datasets.mnist": _MNIST,
    "tf.contrib.learn.python.learn.monitored_session": _TRAIN,
    "tf.contrib.learn.python.learn.session_run_hook": _TRAIN,
    "tf.contrib.losses": "tf_slim.losses",
    "tf.contrib.losses.metric_learning": "tf_slim.losses",
    "tf.contrib.losses.python.losses": "tf_slim.losses",
    "tf.contrib.losses.python.metric_learning": _METRIC_LEARNING,
    "tf.contrib.losses.python.metric_learning.metric_loss_ops": _METRIC_LEARNING,
    "tf.contrib.metrics": "tf_slim.metrics",
    "tf.contrib.signal": "tf.compat.v1.signal",
    "tf.contrib.slim": "tf_slim",
    "tf.contrib.slim.python.slim": "tf_slim",
    "tf.contrib.summary": "tf.python.ops.summary_ops_v2",
    "tf.contrib.tpu.python.ops.tpu_ops": "tf.python.tpu.ops.tpu_ops",
    "tf.contrib.tpu.python.tpu": "tf.python.tpu",
    "tf.contrib.tpu.python.tpu.error_handling": _ESTIMATOR + ".tpu.error_handling",
    "tf.contrib.tpu.python.tpu.tpu_context": _ESTIMATOR + ".tpu.tpu_context",
    "tf.contrib.tpu.python.tpu.tpu_feed": "tf.python.tpu.tpu_feed",
    "tf.python.distribute.distribution_strategy_context": "tf.compat.v1.distribute",
    "tf.python.estimator": _ESTIMATOR,
    "tf.python.estimator.estimator_lib": _ESTIMATOR + ".estimator_lib",
    "tf.python.estimator.keras": _ESTIMATOR + ".estimator_lib",
    "tf.python.training.distribution_strategy_context": "tf.compat.v1.distribute",
    "tf.python.training.gen_training_ops": _TRAINING_OPS,
    "tf.python.training.training_ops": _TRAINING_OPS,
}

_RESOLVERS = (
    "cluster_resolver gce_cluster_resolver kubernetes_cluster_resolver "
    "slurm_cluster_resolver tfconfig_cluster_resolver tpu_cluster_resolver"
)
# Rows of private modules (their package, and its modules) that defined names of a public module,
# the last word of the row: code imports the names from both.
_DEFINED_IN = (
    ("tf.contrib.cluster_resolver.python.training", _RESOLVERS, "tf.contrib.cluster_resolver"),
    ("tf.contrib.crf.python.ops", "crf", "tf.contrib.crf"),
    (
        "tf.contrib.data.python.ops",
        "batching counter enumerate_ops error_ops get_single_element grouping interleave_ops "
        "iterator_ops parsing_ops prefetching_ops random_ops readers resampling scan_ops "
        "shuffle_ops sliding unique writers",
        "tf.contrib.data",
    ),
    ("tf.contrib.eager.python", "datasets tfe", "tf.contrib.eager"),
    (
        "tf.contrib.framework.python.framework",
        "checkpoint_utils tensor_util",
        "tf.contrib.framework",
    ),
    ("tf.contrib.framework.python.ops", "script_ops", "tf.contrib.framework"),
    ("tf.contrib.layers.python.layers", "embedding_ops encoders", "tf.contrib.layers"),
    ("tf.contrib.learn.python", "learn", "tf.contrib.learn"),
    ("tf.contrib.learn.python.learn.estimators", "model_fn", "tf.contrib.learn"),
    ("tf.contrib.learn.python.learn", "preprocessing", "tf.contrib.learn.preprocessing"),
    (
        "tf.contrib.learn.python.learn.preprocessing",
        "categorical_vocabulary text",
        "tf.contrib.learn.preprocessing",
    ),
    ("tf.contrib.legacy_seq2seq.python.ops", "seq2seq", "tf.contrib.legacy_seq2seq"),
    ("tf.contrib.lookup", "lookup_ops", "tf.contrib.lookup"),
    ("tf.contrib.metrics.python.metrics", "classification", "tf.contrib.metrics"),
    (
        "tf.contrib.metrics.python.ops",
        "confusion_matrix_ops metric_ops set_ops",
        "tf.contrib.metrics",
    ),
    (
        "tf.contrib.rnn.python.ops",
        "core_rnn_cell fused_rnn_cell lstm_ops rnn rnn_cell",
        "tf.contrib.rnn",
    ),
    (
        "tf.contrib.seq2seq.python.ops",
        "attention_wrapper basic_decoder beam_search_decoder decoder helper loss",
        "tf.contrib.seq2seq",
    ),
    ("tf.contrib.summary", "summary", "tf.contrib.summary"),
    (
        "tf.contrib.tpu.python.tpu",
        "device_assignment tpu tpu_config tpu_estimator",
        "tf.contrib.tpu",
    ),
    (
        "tf.contrib.training.python.training",
        "bucket_ops evaluation hparam training",
        "tf.contrib.training",
    ),
)
# {private module: public module}
DEFINED_IN = {
    f"{package}.{module}": public
    for package, modules, public in _DEFINED_IN
    for module in modules.split()
}
