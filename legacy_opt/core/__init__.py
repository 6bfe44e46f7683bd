"""RuleOptimizer: the contract of TensorFlow 1's optimizers, written once."""
