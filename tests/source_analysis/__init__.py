"""What reads Python without running it."""
