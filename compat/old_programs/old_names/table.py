"""The table of old names of optimizers, in a compact form that the package `old_names` parses."""

_PARAMETER_SERVERS = "With parameter servers, use any optimizer, or tf.train.SyncReplicasOptimizer."
_T2T = "tensor2tensor.utils."

# Each row contains the old module or modules, their names (old=new if the new name differs), the
# new module or None, and the advice, if there is any (see `Fate`).
NAMES = (
    # Names that TensorFlow still has in tf.compat.v1.train.
    (
        "tf.train",
        """
        AdadeltaOptimizer AdagradDAOptimizer AdagradOptimizer AdamOptimizer FtrlOptimizer
        GradientDescentOptimizer MomentumOptimizer Optimizer ProximalAdagradOptimizer
        ProximalGradientDescentOptimizer RMSPropOptimizer SyncReplicasOptimizer
        experimental.MixedPrecisionLossScaleOptimizer
        """,
        "tf.compat.v1.train",
    ),
    # Names that DeepRec, a fork of TensorFlow 1.15, added.
    ("tf.train", "AdagradDecayOptimizer AdagradDecayOptimizerV2 AdamAsyncOptimizer", "legacy_opt"),
    (
        "tf.train",
        "AdamWOptimizer",
        "legacy_opt",
        "It decays weights like tf.contrib.opt's AdamWOptimizer; DeepRec's class decays "
        "differently.",
    ),
    (
        "tf",
        """
        get_embedding_variable get_multihash_variable EmbeddingVariableOption CBFFilter
        CounterFilter GlobalStepEvict InitializerOption L2WeightEvict StorageOption
        """,
        None,
        "Only DeepRec has EmbeddingVariables: use tf.get_variable with a row for each possible id.",
    ),
    (
        "tf.feature_column",
        "categorical_column_with_embedding",
        None,
        "Only DeepRec has EmbeddingVariables: use categorical_column_with_hash_bucket.",
    ),
    (
        "tf",
        "SmartStageOptions make_prefetch_hook staged",
        None,
        "Only DeepRec has it: use tf.data.Dataset.prefetch.",
    ),
    # tf.contrib.opt.
    (
        "tf.contrib.opt",
        """
        AdaMaxOptimizer AdamGSOptimizer AdamWOptimizer AddSignOptimizer
        DecoupledWeightDecayExtension LARSOptimizer LazyAdamGSOptimizer LazyAdamOptimizer
        MomentumWOptimizer MovingAverageOptimizer MultitaskOptimizerWrapper NadamOptimizer
        PowerSignOptimizer RegAdagradOptimizer ShampooOptimizer VariableClippingOptimizer
        clip_gradients_by_global_norm extend_with_decoupled_weight_decay
        """,
        "legacy_opt",
    ),
    (
        "tf.contrib.opt.python.training.sign_decay",
        "get_cosine_decay_fn get_linear_decay_fn get_restart_decay_fn",
        "legacy_opt",
    ),
    (
        "tf.contrib.opt",
        "AGNOptimizer AGNCustomGetter ElasticAverageOptimizer ElasticAverageCustomGetter "
        "ModelAverageOptimizer ModelAverageCustomGetter",
        None,
        _PARAMETER_SERVERS,
    ),
    (
        "tf.contrib.opt",
        "DropStaleGradientOptimizer",
        None,
        "Use tf.train.SyncReplicasOptimizer, which drops stale gradients.",
    ),
    (
        "tf.contrib.opt",
        "GGTOptimizer",
        None,
        "legacy_opt.ShampooOptimizer also preconditions with matrices, but by another rule.",
    ),
    (
        "tf.contrib.opt",
        "ExternalOptimizerInterface ScipyOptimizerInterface",
        None,
        "Call scipy.optimize.minimize with a function that evaluates loss and gradients.",
    ),
    # Other optimizers and training helpers of tf.contrib.
    ("tf.contrib.layers", "OPTIMIZER_CLS_NAMES OPTIMIZER_SUMMARIES optimize_loss", "legacy_opt"),
    (  # a name of a private module
        "tf.contrib.layers.python.layers.optimizers",
        "adaptive_clipping_fn",
        "legacy_opt",
    ),
    (
        "tf.contrib.training",
        "add_gradients_summaries clip_gradient_norms clip_gradient_norms_fn create_train_op "
        "multiply_gradients",
        "legacy_opt",
    ),
    ("tf.contrib.estimator", "clip_gradients_by_norm", "legacy_opt"),
    ("tf.contrib.tpu", "CrossShardOptimizer", "tf.compat.v1.tpu"),
    (
        "tf.contrib.framework",
        "create_global_step get_global_step get_or_create_global_step",
        "tf.compat.v1.train",
    ),
    (
        "tf.contrib.mixed_precision",
        "LossScaleOptimizer LossScaleManager FixedLossScaleManager "
        "ExponentialUpdateLossScaleManager",
        None,
        "Use tf.compat.v1.train.experimental.enable_mixed_precision_graph_rewrite.",
    ),
    (
        "tf.contrib.estimator",
        "TowerOptimizer replicate_model_fn",
        None,
        "Use tf.distribute.MirroredStrategy, which needs no wrapper.",
    ),
    # BERT, ALBERT, tensor2tensor.
    (
        "optimization",
        "AdamWeightDecayOptimizer",
        "legacy_opt",
        "Delete the lines of BERT's script that increment the global step.",
    ),
    (
        "lamb_optimizer",
        "LAMBOptimizer",
        "legacy_opt",
        "Pass bias_correction=False; delete the lines of ALBERT's script that increment the global "
        "step.",
    ),
    (
        _T2T + "adafactor",
        "AdafactorOptimizer adafactor_decay_rate_adam adafactor_decay_rate_pow",
        "legacy_opt",
    ),
    (
        _T2T + "adafactor",
        "adafactor_optimizer_from_hparams=AdafactorOptimizer",
        "legacy_opt",
        "Pass the hyperparameters optimizer_adafactor_… as arguments.",
    ),
    (
        _T2T + "multistep_optimizer",
        "MultistepAdamOptimizer=GradientAccumulationOptimizer",
        "legacy_opt",
        "Give it tf.compat.v1.train.AdamOptimizer and the number of steps.",
    ),
    (
        _T2T + "multistep_with_adamoptimizer",
        "MultistepAdamOptimizer=GradientAccumulationOptimizer",
        "legacy_opt",
        "Give it tf.compat.v1.train.AdamOptimizer and the number of steps.",
    ),
    (
        _T2T + "yellowfin",
        "YellowFinOptimizer",
        None,
        "Use tf.train.MomentumOptimizer, the optimizer that YellowFin tunes.",
    ),
    # TensorFlow Addons.
    (
        "tfa.optimizers",
        "AdamW=AdamWOptimizer LazyAdam=LazyAdamOptimizer",
        "legacy_opt",
        "The default epsilon is 1e-8; in TensorFlow Addons it is 1e-7.",
    ),
    (
        "tfa.optimizers",
        "SGDW=MomentumWOptimizer",
        "legacy_opt",
        "It computes the same while the learning rate is constant; the momentum slot of SGDW "
        "includes the learning rate.",
    ),
    (
        "tfa.optimizers",
        "extend_with_decoupled_weight_decay DecoupledWeightDecayExtension",
        "legacy_opt",
        "It extends v1 classes; instead of exclude_from_weight_decay pass decay_var_list.",
    ),
    (
        "tfa.optimizers",
        "LAMB=LAMBOptimizer",
        "legacy_opt",
        "Rename the argument weight_decay to weight_decay_rate.",
    ),
    (
        "tfa.optimizers",
        "ProximalAdagrad=ProximalAdagradOptimizer",
        "tf.compat.v1.train",
        "Its learning rate has no default.",
    ),
    (
        "tfa.optimizers",
        "MultiOptimizer",
        "legacy_opt",
        "It assigns optimizers to variables, not to layers.",
    ),
    (
        "tfa.optimizers",
        "MovingAverage=MovingAverageOptimizer",
        "legacy_opt",
        "Its swapping_saver saves the averages.",
    ),
    (
        "tfa.optimizers",
        "SWA AveragedOptimizerWrapper",
        None,
        "Use the argument use_ema of Keras 3's optimizers, or legacy_opt.MovingAverageOptimizer.",
    ),
    (
        "tfa.optimizers",
        "AdaBelief COCOB ConditionalGradient NovoGrad RectifiedAdam Yogi",
        None,
        "legacy_opt.compat.to_v1 runs it in a TF1 graph if TensorFlow Addons is installed.",
    ),
    ("tfa.optimizers", "Lookahead", None, "There is no replacement."),
    (
        "tfa.optimizers",
        """
        CyclicalLearningRate TriangularCyclicalLearningRate Triangular2CyclicalLearningRate
        ExponentialCyclicalLearningRate
        """,
        None,
        "Optimizers made by legacy_opt.compat.to_keras take any Keras schedule as learning rate.",
    ),
)


# The private modules that defined public names: some code imports the names from these modules.
# Each row contains the public module, the package of the private modules, and a dict from each
# private module to its names.
DEFINED_IN = (
    (
        "tf.contrib.opt",
        "tf.contrib.opt.python.training",
        {
            "adam_gs_optimizer": "AdamGSOptimizer",
            "adamax": "AdaMaxOptimizer",
            "addsign": "AddSignOptimizer",
            "agn_optimizer": "AGNOptimizer AGNCustomGetter",
            "drop_stale_gradient_optimizer": "DropStaleGradientOptimizer",
            "elastic_average_optimizer": "ElasticAverageOptimizer ElasticAverageCustomGetter",
            "external_optimizer": "ExternalOptimizerInterface ScipyOptimizerInterface",
            "ggt": "GGTOptimizer",
            "lars_optimizer": "LARSOptimizer",
            "lazy_adam_gs_optimizer": "LazyAdamGSOptimizer",
            "lazy_adam_optimizer": "LazyAdamOptimizer",
            "model_average_optimizer": "ModelAverageOptimizer ModelAverageCustomGetter",
            "moving_average_optimizer": "MovingAverageOptimizer",
            "multitask_optimizer_wrapper": "MultitaskOptimizerWrapper "
            "clip_gradients_by_global_norm",
            "nadam_optimizer": "NadamOptimizer",
            "powersign": "PowerSignOptimizer",
            "reg_adagrad_optimizer": "RegAdagradOptimizer",
            "shampoo": "ShampooOptimizer",
            "variable_clipping_optimizer": "VariableClippingOptimizer",
            "weight_decay_optimizers": "AdamWOptimizer DecoupledWeightDecayExtension "
            "MomentumWOptimizer extend_with_decoupled_weight_decay",
        },
    ),
    (
        "tf.contrib.layers",
        "tf.contrib.layers.python.layers",
        {"optimizers": "OPTIMIZER_CLS_NAMES OPTIMIZER_SUMMARIES optimize_loss"},
    ),
    (
        "tf.contrib.training",
        "tf.contrib.training.python.training",
        {
            "training": "add_gradients_summaries clip_gradient_norms clip_gradient_norms_fn "
            "create_train_op multiply_gradients"
        },
    ),
    (
        "tf.contrib.estimator",
        "tf.contrib.estimator.python.estimator",
        {"extenders": "clip_gradients_by_norm"},
    ),
    (
        "tf.contrib.framework",
        "tf.contrib.framework.python.ops",
        {"variables": "create_global_step get_global_step get_or_create_global_step"},
    ),
    ("tf.contrib.tpu", "tf.contrib.tpu.python.tpu", {"tpu_optimizer": "CrossShardOptimizer"}),
    (  # names that DeepRec added
        "tf.train",
        "tf.python.training",
        {
            "adagrad_decay": "AdagradDecayOptimizer",
            "adagrad_decay_v2": "AdagradDecayOptimizerV2",
            "adam_async": "AdamAsyncOptimizer",
            "weight_decay_optimizers": "AdamWOptimizer",
        },
    ),
)
