"""The question of whether later tokens change the output at earlier positions."""

from collections.abc import Sequence
from contextlib import suppress

from torch import Tensor, nn

from normlab.any_model.questions.cuts import Cuts, CutSearch, usual_cuts
from normlab.any_model.questions.examination import LEAK, Examination, OutputChange
from normlab.any_model.questions.leak import change_in_words, leak_finding
from normlab.any_model.tracing.class_names import causality_by_name
from normlab.errors import UserError
from normlab.findings.finding import Finding
from normlab.findings.question import question


@question("future", of="module")
def future(examination: Examination) -> Finding:
    """Do later tokens change the output at earlier positions?

    Let y be the output at the first half of a row's positions, and y' the output there with other
    tokens in the second half. If they agree, the row is cut in float64 after each position instead
    of in the middle, or after as many as a budget allows: at least after the first position, a
    quarter, two thirds, and all but the last. In an encoder-decoder these are the decoder's tokens,
    if the batch has `decoder_input_ids`.

    If nothing shows whether a model is causal, a change is worth a look. Its config, attention with
    `is_causal = False`, a bidirectional recurrent layer and a masked language model show that it is
    not. But if only modules show it, and the output has one entry per token of the vocabulary, a
    change is worth a look even then.
    """
    if why_not := _why_not(examination):
        return Finding.none(why_not)
    n, outputs = examination.example.steps, examination.outputs(examination.longest_row)
    pooled = _pooled(examination)
    with_positions = (
        (name, positions)
        for name, y in outputs.items()
        if name not in pooled and (positions := _positions(examination, y))
    )
    main, positions = next(with_positions, (None, 0))
    if main is None:
        shapes = " and ".join(str([*y.shape]) for y in outputs.values())
        return Finding.none(f"the output {shapes} has no axis of {n} positions")
    cuts = Cuts(examination, main, positions, pooled)
    first = usual_cuts(n)[0]
    comparisons = {_name(first): cuts.pair(first)}
    changes = examination.changes(comparisons)
    search = CutSearch([first])
    if changes[_name(first)].in_float64 <= LEAK:
        search = cuts.search()
    if search.leaking:
        leaking = {_name(search.leaking): cuts.pair(search.leaking)}
        comparisons |= leaking
        changes |= examination.changes(leaking)
    how = _how_in_words(examination, search.cuts)
    worst = max(changes.values(), key=lambda change: change.in_float64)
    causal = _must_be_causal(examination, worst)
    if causal:
        finding = leak_finding(examination, changes, comparisons, "later tokens", how)
        causal = _must_be_causal(examination, worst, finding.module)
        if causal:
            return finding
    by_design = causal is False and not _predicts_inputs(examination, outputs[main])
    return Finding(
        _not_causal_in_words(examination, worst, how, by_design=by_design),
        verdict="fine" if by_design else "look",
        value=worst.in_float64,
        threshold=LEAK,
    )


def _why_not(examination: Examination) -> str:
    """Return why the question does not apply to the model and its inputs, or "" if it does."""
    if examination.causal is False:
        return "the model is not causal"
    encodes = getattr(getattr(examination.model, "config", None), "is_encoder_decoder", False)
    if encodes and not examination.example.decoder_axes:
        return "the batch has no decoder_input_ids for the decoder; add them"
    return "there are fewer than two positions" if examination.example.steps < 2 else ""


def _must_be_causal(
    examination: Examination, worst: OutputChange, path: str | None = None
) -> bool | None:
    """Return whether the module at `path`, by default the model, must be causal.

    It must be if the user says so, if the tokens are a decoder's, or if later tokens do not change
    the output. Otherwise, what the model or the module declares decides. Returns None if it
    declares nothing.
    """
    if examination.causal or examination.example.decoder_axes or worst.in_float64 <= LEAK:
        return True
    return causality(examination.model, path)


def _positions(examination: Examination, y: Tensor) -> int | None:
    """Return the number of positions of an output, or None if it has no position axis.

    An output may have up to 64 more positions than the inputs.
    """
    n = examination.example.steps
    sizes = [k for k in y.shape if k == n] or [k for k in y.shape[1:-1] if n < k <= n + 64]
    return sizes[0] if sizes else None


def _pooled(examination: Examination) -> frozenset[str]:
    """Return the names of the outputs without positions that have one feature per position.

    Their shape is the same for fewer positions.
    """
    n, outputs = examination.example.steps, examination.outputs(examination.longest_row)
    by_size = {name for name, y in outputs.items() if n not in y.shape[:-1] and n in y.shape[-1:]}
    if not by_size or examination.example.decoder_axes:
        return frozenset()
    short = examination.longest_row.select_positions(0, examination.longest_row.length - 1)
    with suppress(UserError):
        ys = examination.outputs(short)
        return frozenset(x for x in by_size if x in ys and ys[x].shape == outputs[x].shape)
    return frozenset()


def _name(cut: int) -> str:
    return f"other tokens after the first {cut}"


def _how_in_words(examination: Examination, cuts: Sequence[int]) -> str:
    """Describe at how many of the possible cuts the outputs were compared."""
    n, example = examination.example.steps, examination.example
    whose = "decoder positions" if example.decoder_axes else "positions"
    if len(cuts) == 1:
        return f"The first {cuts[0]} of {n} {whose}, with other tokens in the rest"
    many = f"all {n - 1}" if len(cuts) == n - 1 else f"{len(cuts)} of {n - 1}"
    return f"One row of {n} {whose}, with other tokens after a cut: {many} cuts"


def _not_causal_in_words(
    examination: Examination, worst: OutputChange, how: str, *, by_design: bool
) -> str:
    """Describe how strongly later tokens affect the output, if the model may not be causal."""
    change = change_in_words(examination, worst, worst.in_float64)
    says_no = "its config or modules say that it is not"
    declared = says_no if by_design else "set causal=True or causal=False"
    return (
        f"later tokens change the output ({change}). This is right only if the model is not "
        f"causal; {declared}. {how}"
    )


def _predicts_inputs(examination: Examination, y: Tensor) -> bool:
    """Return whether the output has one entry per token of the vocabulary.

    Returns False if the model's config or class says that it is not causal.
    """
    if hasattr(examination.model, "config") and _by_config_or_name(examination.model) is False:
        return False
    ids = [
        x
        for k in examination.example.content
        if not (x := examination.example.values[k]).is_floating_point()
    ]
    sizes = {m.num_embeddings for m in examination.model.modules() if isinstance(m, nn.Embedding)}
    # the largest id must fit, so that a table of relative positions is not taken for the vocabulary
    greatest = max((int(x.max()) for x in ids), default=0)
    return bool(ids) and y.ndim > 2 and greatest < y.shape[-1] in sizes


def causality(model: nn.Module, path: str | None = None) -> bool | None:
    """Return whether a model declares itself causal, or None if it declares nothing.

    Its config, its class name, its attention or its recurrent layers may declare it. If some of its
    attention is causal, such as a decoder's, the model still counts as not causal if the module at
    `path` declares itself not causal.
    """
    declared = _by_config_or_name(model)
    marks = [getattr(module, "is_causal", None) for module in model.modules()]
    if declared:
        return True
    module_is_not = path and getattr(model.get_submodule(path), "is_causal", None) is False
    if any(mark is True for mark in marks) and not module_is_not:
        return True
    both_ways = any(getattr(module, "bidirectional", False) is True for module in model.modules())
    says_no = declared is False or both_ways or any(mark is False for mark in marks)
    return False if says_no else None


def _by_config_or_name(model: nn.Module) -> bool | None:
    """Return whether a model is causal by its config or, if that does not say, by its class name.

    The name does not say it if the same class also has a causal and a bidirectional form. Then the
    config of such a class has its own `is_decoder`, which decides.
    """
    config = getattr(model, "config", None)
    causal, both_ways = (
        getattr(config, name, None) for name in ("causal", "use_bidirectional_attention")
    )
    if getattr(config, "is_decoder", False) is True:
        return True
    if isinstance(causal, bool):  # as in XLM
        return causal
    kind = getattr(config, "attn_type", None)  # as in XLNet
    if kind in ("uni", "bi") or both_ways in (True, "all"):  # as in Gemma 3
        return kind == "uni"
    by_name = causality_by_name(type(model).__name__)
    return False if by_name is None and _may_be_decoder(config) else by_name


def _may_be_decoder(config: object) -> bool:
    """Return whether the class of a config has `is_decoder`.

    In older versions of transformers, every config has it, also of a causal model, but no class.
    """
    return any("is_decoder" in vars(each) for each in type(config).__mro__)
