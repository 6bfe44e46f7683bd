"""The names of `tf.compat.v1.estimator` in TensorFlow 2.15, the last TensorFlow that has them."""

_NAMES = """
BaselineClassifier BaselineEstimator BaselineRegressor BestExporter BinaryClassHead
CheckpointSaverHook CheckpointSaverListener DNNClassifier DNNEstimator DNNLinearCombinedClassifier
DNNLinearCombinedEstimator DNNLinearCombinedRegressor DNNRegressor Estimator EstimatorSpec EvalSpec
Exporter FeedFnHook FinalExporter FinalOpsHook GlobalStepWaiterHook Head LatestExporter
LinearClassifier LinearEstimator LinearRegressor LoggingTensorHook LogisticRegressionHead ModeKeys
MultiClassHead MultiHead MultiLabelHead NanLossDuringTrainingError NanTensorHook
PoissonRegressionHead ProfilerHook RegressionHead RunConfig SecondOrStepTimer SessionRunArgs
SessionRunContext SessionRunHook SessionRunValues StepCounterHook StopAtStepHook SummarySaverHook
TrainSpec VocabInfo WarmStartSettings add_metrics classifier_parse_example_spec experimental export
inputs regressor_parse_example_spec tpu train_and_evaluate
"""
NAMES = _NAMES.split()
_OF_MODULES = {
    "ModeKeys": "EVAL PREDICT TRAIN",
    "experimental": """
        InMemoryEvaluatorHook KMeans LinearSDCA build_raw_supervised_input_receiver_fn call_logit_fn
        dnn_logit_fn_builder linear_logit_fn_builder make_early_stopping_hook
        make_stop_at_checkpoint_step_hook stop_if_higher_hook stop_if_lower_hook
        stop_if_no_decrease_hook stop_if_no_increase_hook
        """,
    "export": """
        ClassificationOutput EvalOutput ExportOutput PredictOutput RegressionOutput
        ServingInputReceiver TensorServingInputReceiver build_parsing_serving_input_receiver_fn
        build_raw_serving_input_receiver_fn
        """,
    "inputs": "numpy_input_fn pandas_input_fn",
    "tpu": "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec experimental",
}


def is_known(name: str) -> bool:
    """Returns whether the module has a name such as "tpu.TPUConfig"."""
    first, _, rest = name.partition(".")
    names = _OF_MODULES.get(first, "").split()
    if not rest or not names:  # attributes of classes, which have no `names`, are not checked
        return first in NAMES
    return rest.partition(".")[0] in names
