"""Tests of the built site in a browser (`make docs-test`); `make test` does not run them."""
