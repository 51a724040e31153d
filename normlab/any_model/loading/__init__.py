"""Loads models and inputs by name.

Begin with `load.py`: `load_transformers` loads a folder or a Hugging Face id, `import_model` Python
code, and `load_by_prefix` either of these, a model of timm or a tiny model. `tiny.py` builds small
transformers models with random weights.
"""
