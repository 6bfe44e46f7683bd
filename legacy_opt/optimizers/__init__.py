"""The optimizers, one in each file: its constructor, its docstring, its rule."""
