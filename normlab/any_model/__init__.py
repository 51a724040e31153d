"""Models that normlab did not build: any `nn.Module`, examined on batches of its own.

Begin with `report.py`: `normlab.inspect(model, batches)` makes an `Examination` and asks the
questions about it. Each folder uses only the ones above it:

    batches/    the user's batch as an example, variants of it, and which outputs correspond
    tracing/    passes from the same state, recorded calls, float64, and what each norm pools over
    loading/    models and inputs from transformers, timm or Python code
    surgery/    norms are replaced by others or folded into weights (`normlab.swap`, `fold_norms`)
    questions/  one file per question, what they share, and the search for the module at fault

`pytest_plugin.py` has one test per question.
"""
