"""Questions about norms, and about models that normlab built.

Each folder has one subject:

    norm/      a norm by itself: the contract that `norm check` checks, and what a norm pools over
    model/     an untrained model, or one from a run: the questions of `inspect`
    card/      a norm's report card, from short runs (`norm card`)
    explain/   norms and placements in words and drawings (`explain`); it has no questions

The articles' numbers are in `examples/`. `questions.py` finds the questions in all folders.

Here, a model's task, stacks and norms are known. So questions use the task's examples and losses,
are answered for each stack, and also ask about batch statistics. `normlab.any_model` knows only a
module and a batch. It asks whether outputs depend on padding, other examples or later positions,
and searches for the module at fault. From it come only `skip` and `quantized`, which change any
model, and `loss_rise` with its limit, so that both packages judge running statistics in the same
way. `normlab.claim_checks` decides claims with the measurements of `norm/` and `model/`.
"""
