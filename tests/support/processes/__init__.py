"""Programs and clusters that tests start."""
