"""Models and inputs by name.

Begin with `load.py`, which loads them from a folder of transformers, a Hugging Face id, timm or
Python code. `tiny.py` builds small transformers models with random weights.
"""
