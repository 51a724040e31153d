"""Loads models and inputs by name.

Begin with `load.py`: `load_transformers` loads a folder or a Hugging Face id, and `import_model`
imports Python code. `load_by_prefix` does either, or loads a timm model or a tiny model.
`tiny.py` builds small transformers models with random weights.
"""
