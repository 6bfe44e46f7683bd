"""RuleOptimizer, and what it checks."""
