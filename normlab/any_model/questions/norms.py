"""The question of what each norm of a model pools over."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from normlab.any_model.questions.examination import Examination
from normlab.any_model.questions.wording import unexamined
from normlab.any_model.tracing.found_norms import FoundNorm
from normlab.any_model.tracing.norm_modules import norms_in_scripts
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question


@question("norms", of="module")
def norms(examination: Examination) -> Finding:
    """What does each norm pool over, and does that agree with its name?

    One value of the norm's recorded input is changed by 1000 times its RMS. The norm pools over the
    axes along which other outputs change too, in training and in evaluation. A norm is any module
    that pools and whose output has the input's shape and hardly changes if the input is doubled.
    Norms that scripted modules call cannot be examined; the answer names them.
    """
    norms, names = examination.norms, {norm.name for norm in examination.norms}
    hidden = [name for name in norms_in_scripts(examination.model) if name not in names]
    if not norms and not hidden:
        return Finding.none("a forward pass calls no norm")
    if not norms:
        return Finding(unexamined(hidden), {"unexamined": hidden}, verdict="look")
    wrong = [norm for norm in norms if norm.misnomer]
    return Finding(
        _answer(norms, wrong, hidden),
        {"norms": [_plain(norm) for norm in norms], "unexamined": hidden},
        table(norms),
        verdict="look" if wrong or hidden else "fine",
        value=float(len(wrong)),
        threshold=0.0,
        module=wrong[0].name if wrong else None,
    )


def _answer(norms: Sequence[FoundNorm], wrong: Sequence[FoundNorm], hidden: Sequence[str]) -> str:
    """Say which name is wrong or, if none is, how many norms of each kind there are."""
    if wrong:
        more = f"; {len(wrong) - 1} more differ from their names" * (len(wrong) > 1)
        answer = _misnomer_in_words(wrong[0]) + more
    else:
        kinds = Counter(f"{norm.kind} over {norm.pools}" for norm in norms)
        shown = "; ".join(f"{number} {words}" for words, number in kinds.most_common())
        count, near = _gains(norms)
        shown += f"; {near} of {count} gains are near 0" * bool(near)
        answer = f"names and behavior agree: {shown}"
    return f"{answer}; {unexamined(hidden)}" if hidden else answer


def _misnomer_in_words(norm: FoundNorm) -> str:
    """Say what a norm does, and what its name suggests; empty if the name is right."""
    if norm.misnomer is None:
        return ""
    name, words = norm.misnomer
    which = f"{norm.name or 'the model'} ({norm.kind})"
    return f"{which} pools over {norm.pools}, but the name {name!r} suggests {words}"


def _plain(norm: FoundNorm) -> dict[str, Any]:
    """Return a norm's fields as the report's JSON has them."""
    fields = {**asdict(norm), "disagrees": _misnomer_in_words(norm)}
    del fields["misnomer"]
    return fields


def _gains(norms: Sequence[FoundNorm]) -> tuple[int, int]:
    """Return the number of gains of all norms, and how many are near 0."""
    gains = [norm.gains for norm in norms if norm.gains]
    return sum(count for count, _ in gains), sum(near for _, near in gains)


def table(norms: Sequence[FoundNorm]) -> AnswerTable:
    """Return one row per group of norms with the same class, pooled axes and eps."""
    groups: dict[tuple[Any, ...], list[FoundNorm]] = {}
    for norm in norms:
        groups.setdefault((norm.kind, norm.pools, norm.eps), []).append(norm)
    rows = []
    for (kind, pools, eps), group in groups.items():
        count, near = _gains(group)
        share = f"{near} of {count}" if count else "-"
        eps = "-" if eps is None else f"{eps:g}"
        rows.append((kind, len(group), pools, eps, share, group[0].name or "the model"))
    return AnswerTable(("norm", "number", "pools over", "eps", "gains near 0", "first"), rows)
