"""The quick questions of `normlab.inspect(model, batches)`.

The change of an output is RMS(y' - y) / RMS(y) over the real positions of one row, in float64.
"""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from normlab.any_model.calls import Call, inside
from normlab.any_model.culprit import locate
from normlab.any_model.examination import LEAK, Examination, Moved, PassPair
from normlab.any_model.example import Example, call
from normlab.any_model.finding import AnswerTable, Finding, question
from normlab.any_model.leak import by_how_much, leak, moves
from normlab.any_model.movement import farthest, percent
from normlab.any_model.norms import FoundNorm
from normlab.any_model.outputs import Overlap, outputs_of, tensors
from normlab.any_model.scripted import hidden_norms, unexamined
from normlab.errors import UserError


@question("norms")
def norms(about: Examination) -> Finding:
    """What does each norm pool over, and does that agree with its name?

    One value of the norm's recorded input is changed by 1000 times its RMS. The norm pools over the
    axes along which other outputs change too, in training and in evaluation. A norm is any module
    that pools and whose output has the input's shape and hardly changes if the input is doubled.
    Norms that scripted modules call cannot be examined; the answer names them.
    """
    norms, names = about.norms, {norm.name for norm in about.norms}
    hidden = [name for name in hidden_norms(about.model) if name not in names]
    if not norms and not hidden:
        return Finding.none("a forward pass calls no norm")
    if not norms:
        return Finding(unexamined(hidden), {"unexamined": hidden}, verdict="look")
    wrong = [norm for norm in norms if norm.disagrees]
    kinds = Counter(f"{norm.kind} over {norm.pools}" for norm in norms)
    shown = "; ".join(f"{number} {words}" for words, number in kinds.most_common())
    count, near = (sum(norm.gains[i] for norm in norms if norm.gains) for i in (0, 1))
    shown += f"; {near} of {count} gains are near 0" * bool(near)
    more = f"; {len(wrong) - 1} more differ from their names" * (len(wrong) > 1)
    text = wrong[0].disagrees + more if wrong else f"names and behavior agree: {shown}"
    return Finding(
        "; ".join(filter(None, (text, unexamined(hidden)))),
        {"norms": [asdict(norm) for norm in norms], "unexamined": hidden},
        table(norms),
        verdict="look" if wrong or hidden else "fine",
        value=float(len(wrong)),
        threshold=0.0,
        module=wrong[0].name if wrong else None,
    )


def table(norms: Sequence[FoundNorm]) -> AnswerTable:
    """Return one row per group of norms with the same class, pooled axes and eps."""
    groups: dict[tuple[Any, ...], list[FoundNorm]] = {}
    for norm in norms:
        groups.setdefault((norm.kind, norm.pools, norm.eps), []).append(norm)
    rows = []
    for (kind, pools, eps), group in groups.items():
        count, near = (sum(n.gains[i] for n in group if n.gains) for i in (0, 1))
        share = f"{near} of {count}" if count else "-"
        eps = "-" if eps is None else f"{eps:g}"
        rows.append((kind, len(group), pools, eps, share, group[0].name or "the model"))
    return AnswerTable(("norm", "number", "pools over", "eps", "gains near 0", "first"), rows)


@question("forward")
def forward(about: Examination) -> Finding:
    """Is the forward pass repeatable and free of NaN, and does it leave its inputs unchanged?

    A row is run twice, with different random numbers. If the outputs differ or contain NaN, no
    other question is asked, except `statistics` after NaN. A third pass starts from the state that
    the second one leaves in the model; all others start from the same state.
    """
    row, outputs = about.lead, about.outputs(about.lead)
    odd = [name for name, y in outputs.items() if bool(y.isnan().any())]
    if odd:
        share = percent(float(outputs[odd[0]].isnan().double().mean()))
        path, sentence = _first_not_finite(about, row)
        which = f" {odd[0]}" * (len(outputs) > 1)
        text = f"the output{which} has NaN at {share} of its entries, first in {sentence}"
        return Finding(text, verdict="broken", module=path)
    before = row.change(row.content, lambda _, x: x.clone())
    twice = PassPair(replace(row), row, Overlap())
    with about.runner.reseeded():
        if about.narrow_movement(twice) > 0 and (movement := about.moved(twice)).wide > LEAK:
            path, sentence = locate(about, twice, movement.output, "random numbers")
            how = by_how_much(movement.wide, movement.oddity)
            text = f"the output {how} from one run to the next: {sentence}"
            return Finding(text, verdict="broken", value=movement.wide, threshold=LEAK, module=path)
    about.runner.restore()
    with torch.no_grad():
        call(about.model, before, about.runner.forward, copies=False)
        # from the state that the first left
        second = outputs_of(call(about.model, row, about.runner.forward))
    changed = [k for k in row.content if not torch.equal(before.values[k], row.values[k])]
    if changed:
        return Finding(f"changes its input {changed[0]} in place", verdict="look")
    both = [name for name in outputs if name in second]
    value, oddity = farthest((second[n], outputs[n]) for n in both)
    if value > about.rounding:
        how = by_how_much(value, oddity)
        text = f"the output of a second call {how}: the model keeps state between calls"
        return Finding(text, verdict="look", value=value, threshold=about.rounding)
    return Finding("repeats exactly", verdict="fine", value=0.0, threshold=LEAK)


def _first_not_finite(about: Examination, row: Example) -> tuple[str | None, str]:
    """Return the first module that turns finite numbers into NaN, or the source of the infinity."""
    calls, _ = about.runner.record(row)

    def has(value: Any, test: Any) -> bool:
        return any(bool(test(x).any()) for x in tensors(value) if x.is_floating_point())

    def not_finite(x: Tensor) -> Tensor:
        return ~x.isfinite()

    def innermost(odd: list[Call]) -> Call | None:
        return next((a for a in odd if not any(inside(b.name, a.name) for b in odd)), None)

    nan = innermost([each for each in calls if has(each.output, torch.isnan)])
    if nan is None:
        return None, "the model, after its last module"
    if not has(nan.inputs, not_finite):
        return nan.name, nan.name or "the model"
    makers = [c for c in calls if has(c.output, not_finite) and not has(c.inputs, not_finite)]
    if (source := innermost(makers[: calls.index(nan) + 1])) is None:
        return nan.name, nan.name or "the model"
    limit = f"{torch.finfo(about.torch_dtype).max:.3g} is the largest {about.dtype}"
    if not inside(nan.name, source.name):
        return source.name, f"{source.name or 'the model'}, whose output is infinite ({limit})"
    where = f"`{source.name}`'s" if source.name else "the model's"
    return source.name, f"{where} own forward, infinite before `{nan.name}` ({limit})"


@question("batch_mates")
def batch_mates(about: Examination) -> Finding:
    """Do the other rows of the batch change a row's output?

    For the first, the last, the longest and the middle row: let y be the row's output alone, and y'
    its output in the batch, in the batch with the rows in reverse order, and, for the longest row,
    with other values in all other rows.
    """
    batch, rows = about.example, about.example.size
    main, base = next(iter(about.outputs(about.one(batch.lead)).items()))
    if (y := about.outputs(batch)[main]).shape == base.shape:
        return Finding.none("the output has no batch axis")
    if y.ndim == base.ndim + 1:
        text = f"the output is {[*y.shape]}, but {[*base.shape]} for one row: its axis is dropped"
        return Finding(f"{text}, as by squeeze() without an axis", verdict="look")
    turned, others = batch.reversed(), batch.with_other_rows(batch.lead)
    about.keep(turned)
    comparisons: dict[str, PassPair] = {}
    for row in about.rows:
        for name, variant, place in (
            ("", batch, row),
            (" in reverse order", turned, rows - 1 - row),
        ):
            overlap = Overlap(batch.side, row=place, rows=rows)
            pair = PassPair(variant, about.one(row), overlap, about.alone(row))
            comparisons[f"row {about.number(row)} among {rows}{name}"] = pair
    name = f"row {about.number(batch.lead)} among {rows} with other values"
    overlap = Overlap(batch.side, row=batch.lead, rows=rows)
    comparisons[name] = PassPair(others, about.one(batch.lead), overlap, about.alone(batch.lead))
    movements = about.all_moved(comparisons)
    return leak(about, movements, comparisons, "other rows", f"Each row alone and among {rows}")


@question("future")
def future(about: Examination) -> Finding:
    """Do later tokens change the output at earlier positions?

    Let y be the output at a row's first half, and y' the same with other tokens in the second half;
    likewise for the first two thirds, and for all positions but the last.
    In an encoder-decoder these are the decoder's tokens, if the batch has `decoder_input_ids`.
    If nothing says whether a model is causal, a change is worth a look. Attention with
    `is_causal = False`, a bidirectional recurrent layer and a masked language model say that it is
    not; but an output with one entry per token of the vocabulary is worth a look all the same.
    """
    example, n = about.example, about.example.steps
    if about.causal is False:
        return Finding.none("the model is not causal")
    encodes = getattr(getattr(about.model, "config", None), "is_encoder_decoder", False)
    if encodes and not example.decoder:
        return Finding.none("the batch has no decoder_input_ids for the decoder; add them")
    if n < 2:
        return Finding.none("there are fewer than two positions")
    y = next(iter(about.outputs(about.lead).values()))
    sizes = [k for k in y.shape if k == n] or [k for k in y.shape[1:-1] if n < k <= n + 64]
    if not sizes or (n not in y.shape[:-1] and y.shape[-1] == n and _is_pooled(about, y)):
        return Finding.none(f"the output {[*y.shape]} has no axis of {n} positions")
    whose = "decoder positions" if example.decoder else "positions"
    # Blocks that share a summary often end in the middle, so two other positions are tried too.
    places = [*dict.fromkeys((n // 2, max(1, 2 * n // 3 - 1), n - 1))]
    numbers = ", ".join(map(str, sorted(places)))
    how = f"The first {numbers} {whose}, with other tokens in the rest of {n}"
    comparisons = {
        f"other tokens after the first {t}": PassPair(
            example.with_later_tokens(t), about.lead, Overlap("right", sizes[0], t)
        )
        for t in places
    }
    first, *more = comparisons
    movements = about.all_moved({first: comparisons[first]})
    # of the others, compare in float64 only those that change in the model's dtype
    if movements[first].wide <= LEAK:
        odd = {name: comparisons[name] for name in more if about.stands_out(comparisons[name])}
        movements |= about.all_moved(odd)
    worst = max(movements.values(), key=lambda each: each.wide)
    causal = about.causal or bool(example.decoder) or worst.wide <= LEAK
    declared = causality(about.model)
    if causal or declared:
        finding = leak(about, movements, comparisons, "later tokens", how)
        if causal or (declared := causality(about.model, finding.module)):
            return finding
    return _not_known_as_causal(about, worst, how, by_modules=declared is False, y=y)


def _not_known_as_causal(
    about: Examination, worst: Moved, how: str, *, by_modules: bool, y: Tensor
) -> Finding:
    """Return the finding on a model that sees later tokens and does not say that it is causal."""
    text = f"later tokens change the output: {moves(about, worst, worst.wide)}, which is right "
    text += "only if the model is not causal: "
    if by_modules and not _predicts_inputs(about, y):
        text += f"its modules say that it is not. {how}"
        return Finding(text, value=worst.wide, threshold=LEAK)
    text += f"set causal=True or causal=False. {how}"
    return Finding(text, verdict="look", value=worst.wide, threshold=LEAK)


def _is_pooled(about: Examination, y: Tensor) -> bool:
    """Return whether the output has the same shape for fewer positions."""
    if about.example.decoder:
        return False
    short = about.lead.cut(about.lead.tokens, 0, about.lead.length - 1)
    with suppress(UserError):
        return next(iter(about.outputs(short).values())).shape == y.shape
    return False


def _predicts_inputs(about: Examination, y: Tensor) -> bool:
    """Return whether the output has one entry per token of the vocabulary."""
    config = getattr(about.model, "config", None)
    if config is not None and "MaskedLM" in type(about.model).__name__:
        return False
    ids = [
        x for k in about.example.content if not (x := about.example.values[k]).is_floating_point()
    ]
    sizes = {m.num_embeddings for m in about.model.modules() if isinstance(m, nn.Embedding)}
    # the largest id must fit, so that a table of relative positions is not taken for the vocabulary
    greatest = max((int(x.max()) for x in ids), default=0)
    return bool(ids) and y.ndim > 2 and greatest < y.shape[-1] in sizes


def causality(model: nn.Module, path: str | None = None) -> bool | None:
    """Return whether a model declares itself causal or not causal; None if it does neither.

    Its config, the name of its class, its attention or its recurrent layers may declare it. If only
    some attention is causal, such as a decoder's, the module at `path` may declare that it is not.
    """
    config, name = getattr(model, "config", None), type(model).__name__
    marks = [getattr(module, "is_causal", None) for module in model.modules()]
    if re.search("CausalLM|LMHead", name) or getattr(config, "is_decoder", False) is True:
        return True
    module_is_not = path and getattr(model.get_submodule(path), "is_causal", None) is False
    if any(mark is True for mark in marks) and not module_is_not:
        return True
    both_ways = any(getattr(module, "bidirectional", False) is True for module in model.modules())
    says_no = "MaskedLM" in name or both_ways or any(mark is False for mark in marks)
    return False if says_no else None
