"""`RuleOptimizer`: the methods of TensorFlow 1's Optimizer, implemented once for all rules."""
