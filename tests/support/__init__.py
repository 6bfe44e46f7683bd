"""What the tests have in common."""
