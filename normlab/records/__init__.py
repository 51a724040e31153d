"""Evidence on disk: the files of a run, where they are, and which runs may be compared.

This package does not import torch, so listing and reporting start fast.
"""
