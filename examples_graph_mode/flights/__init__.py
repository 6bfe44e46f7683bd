"""The flights example: its data, its models, its processes, its reports."""
