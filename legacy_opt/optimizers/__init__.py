"""The optimizers, one per file: constructor, documentation and update rule."""
