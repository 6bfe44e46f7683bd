"""Names of tf.contrib that live in `legacy_opt.compat.contrib` now.

The rows have the form of the rows in `table.py`. A test compares them with the modules' `__all__`.
"""

_PIECES = "legacy_opt.compat.contrib."
_MNIST = _PIECES + "learn.datasets"

NAMES = (
    (
        "tf.contrib.crf",
        """
        crf_binary_score crf_decode crf_log_likelihood crf_log_norm
        crf_multitag_sequence_score crf_sequence_score crf_unary_score viterbi_decode
        """,
        _PIECES + "crf",
    ),
    ("tf.contrib.distribute", "MirroredStrategy", _PIECES + "distribute"),
    (
        "tf.contrib.framework",
        "init_from_checkpoint list_variables load_checkpoint load_variable py_func",
        _PIECES + "framework",
    ),
    ("tf.contrib.layers", "embed_sequence", _PIECES + "layers"),
    (
        "tf.contrib.learn.datasets.mnist",
        "DataSet Datasets dense_to_one_hot extract_images extract_labels load_mnist read_data_sets",
        _MNIST + ".mnist",
    ),
    (
        "tf.contrib.learn.preprocessing",
        "ByteProcessor CategoricalVocabulary VocabularyProcessor tokenizer",
        _PIECES + "learn.preprocessing",
    ),
    (
        "tf.contrib.legacy_seq2seq",
        "rnn_decoder sequence_loss sequence_loss_by_example",
        _PIECES + "legacy_seq2seq",
    ),
    (
        "tf.contrib.lookup",
        """
        FastHashSpec HashTable HasherSpec IdTableWithHashBuckets StrongHashSpec
        TextFileIdTableInitializer TextFileStringTableInitializer index_table_from_file
        index_table_from_tensor index_to_string index_to_string_table_from_file
        index_to_string_table_from_tensor string_to_index
        """,
        _PIECES + "lookup",
    ),
    (
        "tf.contrib.metrics",
        """
        accuracy aggregate_metric_map aggregate_metrics sparse_recall_at_top_k
        streaming_accuracy streaming_auc streaming_false_negative_rate
        streaming_false_negatives streaming_false_negatives_at_thresholds
        streaming_false_positive_rate streaming_false_positives
        streaming_false_positives_at_thresholds streaming_mean streaming_mean_absolute_error
        streaming_mean_cosine_distance streaming_mean_iou streaming_mean_relative_error
        streaming_mean_squared_error streaming_mean_tensor streaming_percentage_less
        streaming_precision streaming_precision_at_thresholds streaming_recall
        streaming_recall_at_k streaming_recall_at_thresholds
        streaming_root_mean_squared_error streaming_sensitivity_at_specificity
        streaming_sparse_average_precision_at_k streaming_sparse_precision_at_k
        streaming_sparse_precision_at_top_k streaming_sparse_recall_at_k
        streaming_specificity_at_sensitivity streaming_true_negatives
        streaming_true_negatives_at_thresholds streaming_true_positives
        streaming_true_positives_at_thresholds
        """,
        _PIECES + "metrics",
    ),
    (
        "tf.contrib.rnn",
        """
        AttentionCellWrapper CoupledInputForgetGateLSTMCell EmbeddingWrapper HighwayWrapper
        InputProjectionWrapper LayerNormBasicLSTMCell OutputProjectionWrapper
        stack_bidirectional_dynamic_rnn stack_bidirectional_rnn
        """,
        _PIECES + "rnn",
    ),
    (  # names of a private module
        "tf.contrib.rnn.python.ops.core_rnn_cell",
        "_Linear=Linear _linear=linear",
        _PIECES + "rnn_linear",
    ),
    ("tf.contrib.rnn.python.ops.rnn_cell", "_Linear=Linear", _PIECES + "rnn_linear"),
    ("tf.contrib.seq2seq", "sequence_loss", _PIECES + "seq2seq"),
    ("tf.contrib.training", "HParams parse_values", _PIECES + "training"),
    ("tf.contrib.learn.datasets", "mnist", _MNIST),
    ("tf.examples.tutorials.mnist", "input_data=mnist", _MNIST, "It downloads nothing."),
)
