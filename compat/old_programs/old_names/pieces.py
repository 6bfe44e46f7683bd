"""Names of tf.contrib that live in `legacy_opt.compat.contrib` now.

The rows have the form of the rows in `table.py`. A test compares them with the modules' `__all__`.
"""

_PIECES = "legacy_opt.compat.contrib."
_KERAS_2 = "It needs Keras 2 (TensorFlow 2.16+: pip install --no-deps tf-keras, of its version)."
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
    ("tf.contrib.framework tf.contrib.framework.python.ops", "py_func", _PIECES + "framework"),
    ("tf.contrib.layers", "embed_sequence", _PIECES + "layers"),
    (
        "tf.contrib.learn.datasets.mnist",
        "DataSet Datasets dense_to_one_hot extract_images extract_labels load_mnist read_data_sets",
        _MNIST + ".mnist",
    ),
    (
        "tf.contrib.learn.preprocessing",
        "CategoricalVocabulary VocabularyProcessor tokenizer",
        _PIECES + "learn.preprocessing",
    ),
    (
        "tf.contrib.legacy_seq2seq",
        "attention_decoder embedding_attention_decoder embedding_attention_seq2seq "
        "embedding_rnn_decoder embedding_rnn_seq2seq model_with_buckets rnn_decoder sequence_loss "
        "sequence_loss_by_example",
        _PIECES + "legacy_seq2seq",
    ),
    (
        "tf.contrib.metrics",
        "accuracy streaming_false_negative_rate streaming_false_positive_rate "
        "streaming_recall_at_k",
        _PIECES + "metrics",
    ),
    (
        "tf.contrib.rnn",
        """
        AttentionCellWrapper CoupledInputForgetGateLSTMCell EmbeddingWrapper HighwayWrapper
        InputProjectionWrapper LSTMBlockCell LSTMBlockFusedCell LayerNormBasicLSTMCell NASCell
        OutputProjectionWrapper TimeReversedFusedRNN
        """,
        _PIECES + "rnn",
        _KERAS_2,
    ),
    ("tf.contrib.rnn", "stack_bidirectional_dynamic_rnn", _PIECES + "rnn"),
    ("tf.contrib.learn", "ModeKeys", _PIECES + "learn"),
    (  # names of a private module
        "tf.contrib.rnn.python.ops.core_rnn_cell",
        "_Linear=Linear _linear=linear",
        _PIECES + "rnn_linear",
    ),
    ("tf.contrib.rnn.python.ops.rnn_cell", "_Linear=Linear", _PIECES + "rnn_linear"),
    (
        "tf.contrib.seq2seq",
        "AttentionMechanism AttentionWrapper AttentionWrapperState BahdanauAttention "
        "LuongAttention",
        _PIECES + "seq2seq",
        _KERAS_2,
    ),
    (
        "tf.contrib.seq2seq",
        "BasicDecoder BasicDecoderOutput Decoder GreedyEmbeddingHelper Helper TrainingHelper "
        "dynamic_decode sequence_loss",
        _PIECES + "seq2seq",
    ),
    ("tf.contrib.training", "HParams bucket_by_sequence_length parse_values", _PIECES + "training"),
    ("tf.contrib.learn.datasets", "mnist", _MNIST),
    ("tf.examples.tutorials.mnist", "input_data=mnist", _MNIST, "It downloads nothing."),
)
