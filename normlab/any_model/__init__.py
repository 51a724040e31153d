"""Models that normlab did not build: any `nn.Module`, examined on batches of its own.

Begin with `inspect.py`: `normlab.inspect(model, batches)` makes an `Examination`, asks the
questions about it and returns a `Report` (`report.py`). Each folder uses only the ones above it:

    batches/    the user's batch as an example, variants of it, and which outputs correspond
    tracing/    passes from the same state, recorded calls, float64, and what each norm pools over
    loading/    models and inputs from transformers, timm or Python code
    surgery/    norms are replaced by others or folded into weights (`normlab.swap`, `fold_norms`)
    questions/  one file per question, what they share, and the search for the module at fault

`pytest_plugin.py` has one test per question.

A question is asked here if a module and a batch suffice to answer it: the model is run on changed
inputs, and the finding names the module at fault. `normlab.inspection` asks what only the builder
of a model can answer: about a norm by itself, and about models and runs of normlab, by stack, by
placement and with their task's examples. So both packages ask about padding and about later tokens,
but by different means.
"""
