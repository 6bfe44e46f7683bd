"""Programs that train with the real Horovod. Only `make horovod` installs Horovod.

pytest collects only test_check.py, because the names of the programs do not begin with test_.
"""
