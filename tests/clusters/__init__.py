"""Tests of training in several processes, some of which are killed."""
