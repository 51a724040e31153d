"""Evidence on disk: the files of a run, where they are, and which runs may be compared.

Nothing here imports torch, so listing and reporting start fast.
"""
