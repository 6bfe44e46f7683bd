"""Tests of the programs in examples_graph_mode."""
