"""Comparisons with the optimizers of TensorFlow Addons, which only `make addons` installs."""
