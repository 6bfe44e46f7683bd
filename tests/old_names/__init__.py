"""The old names, put back."""
