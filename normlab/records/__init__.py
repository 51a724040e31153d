"""The records of runs: their files, where these are stored, and which runs may be compared.

This package does not import torch, so listing and reporting start fast.
"""
