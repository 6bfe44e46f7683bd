"""Runs every command on hostile files, and measures what they cost.

    python -m tests.tools.hostile_files

`data_files` and `checkpoints` make the files, `commands` has the commands that take them, and
`measured` runs one command on one file.
"""
