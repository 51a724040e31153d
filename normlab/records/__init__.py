"""Evidence on disk: what a run leaves behind, where it lies and which runs belong together.

Nothing here imports torch, so listing and reporting answer at once.
"""
