"""The modules of migration_story.py: stages, files and report."""
