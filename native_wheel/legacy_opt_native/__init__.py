"""Compiled operations libraries and kernels. `legacy_opt.native` finds them by their file names."""
