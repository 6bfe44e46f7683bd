"""Compiles the C code of kernels, and runs kernels by TensorFlow operations."""
