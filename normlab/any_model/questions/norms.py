"""The question of what each norm of a model pools over."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from normlab.any_model.questions.examination import Examination
from normlab.any_model.questions.wording import unexamined
from normlab.any_model.tracing.found_norms import FoundNorm
from normlab.any_model.tracing.gains import Gains
from normlab.any_model.tracing.norm_modules import norms_in_scripts
from normlab.findings.finding import AnswerTable, Finding
from normlab.findings.question import question


@question("norms", of="module")
def norms(examination: Examination) -> Finding:
    """What does each norm pool over, and does that agree with its name?

    One value of the norm's recorded input is changed by 1000 times the input's RMS. The norm pools
    over the axes along which other outputs change too, in training and in evaluation. A norm is any
    module that pools, whose output has the input's shape, and whose output barely changes if the
    input is doubled. Norms that scripted modules call cannot be examined, and neither can norms
    that fail when they are run by themselves; the answer lists them.
    """
    norms, failed = examination.norms, examination.search_for_norms.failed
    names = {norm.name for norm in norms}
    scripted = [name for name in norms_in_scripts(examination.model) if name not in names]
    paths = [*scripted, *failed]
    if not norms and not paths:
        return Finding.none("a forward pass calls no norm")
    not_examined = "; ".join(filter(None, (unexamined(scripted), _failed_in_words(failed))))
    if not norms:
        return Finding(not_examined, {"unexamined": paths}, verdict="look")
    wrong = [norm for norm in norms if norm.misnomer]
    return Finding(
        f"{_answer(norms, wrong)}{'; ' * bool(not_examined)}{not_examined}",
        {"norms": [_plain(norm) for norm in norms], "unexamined": paths},
        table_of_norms(norms),
        verdict="look" if wrong or paths else "fine",
        value=float(len(wrong)),
        threshold=0.0,
        module=wrong[0].name if wrong else None,
    )


def _answer(norms: Sequence[FoundNorm], wrong: Sequence[FoundNorm]) -> str:
    """Describe the first wrong name or, if all names are right, count the norms of each kind."""
    if wrong:
        more = f"; {len(wrong) - 1} more differ from their names" * (len(wrong) > 1)
        return _misnomer_in_words(wrong[0]) + more
    kinds = Counter(f"{norm.kind} over {norm.pools}" for norm in norms)
    shown = "; ".join(f"{number} {words}" for words, number in kinds.most_common())
    gains = _total(norms)
    near_zero = f"; {gains.near_zero} of {gains.number} gains are near 0" * bool(gains.near_zero)
    return f"names and behavior agree: {shown}{near_zero}"


def _failed_in_words(failed: Mapping[str, str]) -> str:
    """Describe which norms could not be run by themselves, and why; "" if there are none."""
    if not failed:
        return ""
    shown = [f"{path or 'the model'} ({why})" for path, why in [*failed.items()][:3]]
    more = f" and {len(failed) - 3} more" * (len(failed) > 3)
    return f"not examined (they fail when run by themselves): {', '.join(shown)}{more}"


def _misnomer_in_words(norm: FoundNorm) -> str:
    """Describe what a norm does and what its name suggests, or return "" if the name is right."""
    if norm.misnomer is None:
        return ""
    name, words = norm.misnomer
    which = f"{norm.name or 'the model'} ({norm.kind})"
    return f"{which} pools over {norm.pools}, but the name {name!r} suggests {words}"


def _plain(norm: FoundNorm) -> dict[str, Any]:
    """Return a norm's fields as written to the report's JSON."""
    fields = {**asdict(norm), "disagrees": _misnomer_in_words(norm)}
    del fields["misnomer"]
    return fields


def _total(norms: Sequence[FoundNorm]) -> Gains:
    """Return the numbers of gains, all and near 0, summed over norms."""
    gains = [norm.gains for norm in norms if norm.gains]
    return Gains(sum(each.number for each in gains), sum(each.near_zero for each in gains))


def table_of_norms(norms: Sequence[FoundNorm]) -> AnswerTable:
    """Return a table with one row for all norms of the same class, pooled axes and eps."""
    groups: dict[tuple[Any, ...], list[FoundNorm]] = {}
    for norm in norms:
        groups.setdefault((norm.kind, norm.pools, norm.eps), []).append(norm)
    rows = []
    for (kind, pools, eps), group in groups.items():
        gains = _total(group)
        share = f"{gains.near_zero} of {gains.number}" if gains.number else "-"
        eps = "-" if eps is None else f"{eps:g}"
        rows.append((kind, len(group), pools, eps, share, group[0].name or "the model"))
    return AnswerTable(("norm", "number", "pools over", "eps", "gains near 0", "first"), rows)
