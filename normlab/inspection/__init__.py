"""Questions about norms and about models that normlab built.

Each folder has one subject:

    norm/          a norm by itself: the contract of `norm check`, and what it pools
    model/         an untrained model, or one from a run: the questions of `inspect`
    card/          a norm's report card, from short runs (`norm card`)
    claim_checks/  sentences of articles, decided in seconds on small, fixed inputs
    explain/       norms and placements in words and drawings (`explain`), without questions

The articles' numbers are in `examples/`. `questions.py` finds the questions in all folders.

Here, a model's task, stacks and norms are known: questions use its examples and losses, answer for
each stack, and also ask about batch statistics. `normlab.any_model` knows only a module and a
batch; it asks whether outputs depend on padding, other examples or later positions, and searches
for the module at fault.
"""
