"""Tests with third-party packages. Only `make clients` installs these packages.

pytest does not collect the files by default, because their names do not begin with test_.
"""
