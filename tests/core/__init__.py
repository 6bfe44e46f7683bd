"""Tests of RuleOptimizer and of argument checks."""
