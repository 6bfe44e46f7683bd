"""The command legacy-opt."""
