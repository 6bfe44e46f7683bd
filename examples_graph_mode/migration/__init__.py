"""The migration example: its stages, and what they hand over."""
