"""Programs that write pages and data, or drive the tests."""
