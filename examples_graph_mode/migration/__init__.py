"""The modules of migration_story.py: its stages, their files, and the report."""
