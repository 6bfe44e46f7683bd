"""Tests with other people's packages, which only `make clients` installs.

pytest does not collect these files by itself: their names do not begin with test_.
"""
