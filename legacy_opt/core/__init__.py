"""`RuleOptimizer`: TensorFlow 1's Optimizer methods, implemented once for all update rules."""
