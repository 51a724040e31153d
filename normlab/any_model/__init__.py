"""Examines models that normlab did not build: any `nn.Module`, on batches that the user passes.

Begin with `inspect.py`: `normlab.inspect(model, batches)` makes an `Examination`, asks the
questions about it and returns a `Report` (`report.py`). Each folder uses only the ones above it:

    batches/    turns the user's batch into an example, and makes variants of it
    tracing/    runs a model from a fixed state, records its calls, and finds what norms pool over
    loading/    loads models and inputs from transformers, timm or Python code
    surgery/    replaces norms or folds them into weights (`normlab.swap`, `normlab.fold_norms`)
    questions/  has one file per question, their shared code, and the search for the module at fault

`pytest_plugin.py` makes one test per question.

A question is asked here if a module and a batch suffice to answer it: the model is run on changed
inputs, and the finding names the module at fault. `normlab.inspection` asks about a norm by itself,
and about models and runs of normlab, whose stacks, placements and tasks are known. So both packages
ask about padding and about later tokens, but measure them differently.
"""
