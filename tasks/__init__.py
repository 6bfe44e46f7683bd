"""The tasks of noxfile.py. A task is a session of nox, and `make` has a command for each."""
