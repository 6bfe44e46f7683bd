"""Tests with third-party packages, which only `make clients` installs.

pytest does not collect these files by default, because their names do not begin with test_.
"""
