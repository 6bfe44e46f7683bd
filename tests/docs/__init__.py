"""The pages of docs/."""
