"""Golden numbers, and the suite over every class."""
