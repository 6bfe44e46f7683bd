"""The programs of examples_graph_mode."""
