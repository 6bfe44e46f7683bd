"""Programs that train with the real Horovod, which only `make horovod` installs.

pytest does not collect these files, because their names do not begin with test_.
"""
