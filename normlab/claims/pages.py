"""The ledger as a page in Markdown and for a browser, always the same bytes for one evidence."""

import posixpath
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill

from normlab.claims.claim import DOCUMENTS, Part
from normlab.claims.judge import p_text
from normlab.claims.ledger import VERDICTS, Entry, Outcome
from normlab.records.labels import in_markdown
from normlab.records.packed import RECORDS, Address
from normlab.records.store import RECORD_FILE
from normlab.reports.page import page, signed

_WIDTH = 100
_COLUMNS = ("part", "question", "found", "seeds", "p", "corrected", "verdict")
_HOME = "results"
_TITLE = "The claims of the documents, and what was found"
_WRITTEN = (
    "Written by `normlab claims --write` from the committed records and the computed checks; do "
    "not edit. `normlab claims N` shows a claim in the terminal, `normlab claims --verify` "
    "verifies this page."
)
_CARE = (
    "A verdict holds for the data, the size and the settings that its grade names, not for the "
    "documents' own experiments, whose code is unknown. Only grade A is about these."
)
_MEANINGS: Mapping[str, str] = {
    "supported": "every part is supported",
    "contradicted": "every part is contradicted, or shows no difference",
    "mixed": "its parts have different verdicts, which are named",
    "undecided": "measured, but no part is decided",
    "not measured": "no evidence counts yet",
}
_GRADES: Mapping[str, str] = {
    "A": "the document's own data and size",
    "B": "trained to convergence, each side tuned, two data sets",
    "C": "any other measurement",
    "D": "computed, published, or about the norm alone",
}
_HOURS = (
    "Hours are for one core with AVX512, one run after the other (with AVX2 alone about three "
    "times as many), or for one GPU at `scale=paper`; `normlab study plan STUDY` measures them. "
    "The trials of `normlab study tune` are extra. Further seeds get new numbers, so that both "
    "sides of a pair come from one machine and one code; `rows=NAME,NAME` makes only the sides "
    "that a part compares."
)
_NOTES = (
    "A claim has parts that can be true or false one by one. Each part has one primary endpoint, "
    "which alone decides it. Secondary evidence is shown and never counted.",
    "A contrast is the difference between two sides, seed by seed, in the claimed direction, "
    "averaged over nuisances. `a [b, c]` is its mean with a t interval; for a factor all "
    "means are geometric. An interval above the margin supports the part, one below 0 contradicts "
    "it. There is *no difference* if the narrower interval of two one-sided tests is within the "
    "margin on both sides.",
    "A claim that two sides are the same is supported if that narrower interval is within the "
    "margin, and contradicted if the wider one is beyond it, on either side.",
    "If the difference is the same in every seed, there is no spread to judge by, and the part "
    "is undecided.",
    "Seeds that train are counted, and compared with those of the other side by Fisher's exact "
    "test. If all of a side train, or there is no other side, they are compared with half of the "
    "seeds by the exact binomial test, so that five seeds never decide. That a side trains as "
    "often then means: no sign that it trains less often, and most of its runs train, at least the "
    "share in brackets (exact, 95 %).",
    "There are planned analyses at 5, 8 and 12 seeds, which spend 0.01, 0.015 and 0.025 of an "
    "error of 0.05: intervals are of 99, 98.5 and 97.5 %; the narrower ones, shown where they "
    "decide before the correction, of 98, 97 and 95 %. Fewer than five seeds decide nothing.",
    "p is of the test that decides: against the margin (supported), against 0 (contradicted), of "
    "equivalence (no difference); for sides claimed to be the same: of equivalence (supported), "
    "against the margin (contradicted); for counts: Fisher's or the binomial. In an undecided part "
    "it is the smallest of these, so do not quote it as a test of no effect. *Corrected* is "
    "multiplied for the planned analysis, then by Holm over the primary endpoints of the study at "
    "that scale; at 0.05 and above a part is undecided. *The direction is shown, its size is "
    "open*: 0 is excluded after the same correction, the margin is not.",
    "A run counts if it was made by clean code and tested its last weights, or their mean; both "
    "sides of a pair share code, data and arithmetic. A side at the floor, which is the score of "
    "an untrained baseline, decides nothing. Clear of the floor is a loss that is a nat lower, an "
    "accuracy whose Wilson interval begins 2 points above, any other score by its interval over "
    "seeds. If a seed diverged, the counts of seeds that train decide (except for an interaction); "
    "if one ended at the floor of a side that trained, differences of scores decide nothing.",
    "Times are of candidates that took turns in one process: `n` are rounds, and the interval "
    "shows noise, not the spread between machines.",
    "Grades: " + "; ".join(f"{name}: {meaning}" for name, meaning in _GRADES.items()) + ".",
)


def _address(path: str) -> str:
    """Return the link to a file or folder of the checkout from the folder of the pages."""
    return posixpath.relpath(path, _HOME)


def verdict_text(entry: Entry) -> str:
    """Return the verdict with its grades, such as `contradicted (C: Multi30k, 2+2 layers)`."""
    about = [entry.by_parts] if entry.verdict == "mixed" else []
    about += [entry.grades] if entry.grades else []
    return f"{entry.verdict} ({'; '.join(about)})" if about else entry.verdict


def part_text(part: Part) -> str:
    """Return the statement of a part, with its note."""
    return f"{part.statement} ({part.note})" if part.note else part.statement


def outcome_text(outcome: Outcome) -> str:
    """Return the verdict of an endpoint with its grade."""
    return f"{outcome.verdict} ({outcome.grade})" if outcome.grade else outcome.verdict


def found_text(outcome: Outcome) -> str:
    """Return the value with its interval, what it was made of, and why the endpoint is open."""
    found = outcome.finding
    said = found.found or found.detail
    if found.found and found.detail:
        said += f" ({found.detail})"
    return "; ".join(part for part in (said, outcome.reason) if part)


def seeds_text(outcome: Outcome) -> str:
    """Return the number of seeds or rounds, and the confidence of the interval."""
    found = outcome.finding
    if not found.n:
        return ""
    many = found.look or found.n
    text = f"{many} {found.repeats}{'s' if many != 1 else ''}"
    return text if found.confidence is None else f"{text}, {100 * found.confidence:g} %"


def measure_text(outcome: Outcome) -> str:
    """Return the command that would measure more, its cost, and what to tune first; "" if none."""
    found = outcome.finding
    if found.command is None:
        return ""
    first, why = tune_first(outcome)
    said = f"`{first}` first, {why}; then `{found.command}`" if first else f"`{found.command}`"
    return f"{said} ({found.cost})" if found.cost else said


def tune_first(outcome: Outcome) -> tuple[str, str]:
    """Return the command that chooses the rates that a study lacks, and which; "" for none."""
    endpoint, untuned = outcome.endpoint, outcome.finding.untuned
    if not untuned or endpoint.family is None:
        return "", ""
    study, scale = endpoint.family
    return f"normlab study tune {study} scale={scale}", f"as {no_rate(untuned)}"


def no_rate(names: Sequence[str]) -> str:
    """Name the rows that have no tuned rate, or if there are many, their number."""
    said = " and ".join(names) if len(names) <= 3 else f"{len(names)} rows"
    return f"no rate is chosen for {said}"


def markdown(entries: Sequence[Entry]) -> str:
    """Return the page in Markdown, `results/claims.md`."""
    counts = Counter(entry.verdict for entry in entries)
    said = ", ".join(f"{counts[name]} {name}" for name in VERDICTS)
    meanings = "; ".join(f"*{name}*: {meaning}" for name, meaning in _MEANINGS.items())
    notes = [
        fill(note, _WIDTH, initial_indent="- ", subsequent_indent="  ")
        for note in (f"{meanings}.", *_NOTES)
    ]
    blocks = [
        f"# {_TITLE}",
        fill(_WRITTEN, _WIDTH),
        fill(f"**Read with care.** {_CARE}", _WIDTH),
        "\n".join(notes),
        f"{len(entries)} claims: {said}.",
        _summary(entries),
        *_rest(entries),
        *(_section(entry) for entry in entries),
    ]
    return "\n\n".join(blocks) + "\n"


def _summary(entries: Sequence[Entry]) -> str:
    rows = [
        [
            _link(entry.claim.id),
            entry.claim.statement,
            " ".join(entry.claim.documents),
            entry.claim.figure or "-",
            _bold(verdict_text(entry), entry.verdict),
        ]
        for entry in entries
    ]
    return _table(["#", "claim", "from", "its value", "verdict"], rows)


def _link(number: int) -> str:
    return f"[{number}](#claim-{number})"


def _rest(entries: Sequence[Entry]) -> list[str]:
    """Return what would decide the open parts, one line per command; nothing for none."""
    open_parts: dict[str, list[Outcome]] = {}
    for outcome in (each for entry in entries for each in entry.primary):
        if (command := outcome.finding.command) is not None:
            open_parts.setdefault(command, []).append(outcome)
    rows: list[list[str]] = []
    for command, parts in sorted(open_parts.items()):
        first = next((f"`{said}`, then " for each in parts if (said := tune_first(each)[0])), "")
        names = ", ".join(f"{_link(each.claim)} {each.name}" for each in parts)
        rows.append([names, f"{first}`{command}`", parts[0].finding.cost or "-"])
    if not rows:
        return []
    table = _table(["parts", "to measure", "cost"], rows)
    return ["## What would decide the rest", fill(_HOURS, _WIDTH), table]


def _section(entry: Entry) -> str:
    claim = entry.claim
    figure = f"; its value: {claim.figure}" if claim.figure else ""
    facts = [
        f"- Verdict: {_bold(verdict_text(entry), entry.verdict)}",
        f"- Literature: {claim.literature.strip()}",
    ]
    if claim.see:
        facts.append(f"- See also: {', '.join(f'[{p}]({_address(p)})' for p in claim.see)}")
    facts += [f"- {each.name}: {part_text(each.part)}" for each in entry.primary]
    blocks = [
        f"## Claim {claim.id}",
        f"{claim.statement} ({', '.join(claim.documents)}{figure})",
        "\n".join(facts),
        _table(_COLUMNS, map(_row, entry.primary)),
    ]
    if lines := _open(entry):
        blocks.append("\n".join(lines))
    if entry.secondary:
        table = _table(_COLUMNS, map(_row, entry.secondary))
        blocks += ["<details><summary>Secondary, never counted</summary>", table, "</details>"]
    return "\n\n".join(blocks)


def _open(entry: Entry) -> list[str]:
    """Return per open part what would measure more, and which runs do not count."""
    lines: list[str] = []
    for outcome in entry.primary:
        if measure := measure_text(outcome):
            lines.append(f"- {outcome.name}, to measure: {measure}")
        if excluded := outcome.finding.excluded:
            lines.append(f"- {outcome.name}, runs that do not count: {'; '.join(excluded)}")
    return lines


def _row(outcome: Outcome) -> list[str]:
    return [
        outcome.name,
        outcome.question,
        " ".join(part for part in (found_text(outcome), _links(outcome)) if part) or "-",
        seeds_text(outcome) or "-",
        p_text(outcome.finding.p),
        p_text(outcome.p_holm),
        _bold(outcome_text(outcome), outcome.verdict),
    ]


def _links(outcome: Outcome) -> str:
    """Return links to the records of the experiments, or to the report, that it rests on."""
    links: dict[str, dict[str, None]] = {}  # the rows of packed records, by the link
    for path in outcome.finding.records:
        if (packed := Address.of(path)) is not None:
            link = f"{_address(str(packed.folder))}/{RECORDS}"
            links.setdefault(link, {})[packed.name] = None
        else:
            link = _address(path)
            links.setdefault(link if link.endswith(".json") else posixpath.dirname(link), {})
    shown = [
        f"[{posixpath.dirname(link)}]({link}): {', '.join(rows)}"
        if rows
        else f"[{posixpath.basename(link)}]({link})"
        for link, rows in links.items()
    ]
    return "; ".join(shown)


def _bold(text: str, verdict: str) -> str:
    return f"**{verdict}**{text.removeprefix(verdict)}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(in_markdown(cell) for cell in row) + " |" for row in cells)


def html(entries: Sequence[Entry], *, text: str) -> str:
    """Return the page for a browser; `text` is the Markdown page in the same folder."""
    verdicts = Counter(entry.verdict for entry in entries)
    documents = Counter(name for entry in entries for name in entry.claim.documents)
    return page(
        "claims.html",
        title=_TITLE,
        written=_WRITTEN,
        care=_CARE,
        notes=_NOTES,
        verdicts=[(name, verdicts[name], _MEANINGS[name]) for name in VERDICTS],
        documents=[(name, documents[name]) for name in DOCUMENTS if documents[name]],
        entries=entries,
        text=text,
        address=_address,
        experiments=_experiments,
        part_text=part_text,
        p_text=p_text,
        seeds_text=seeds_text,
        signed=signed,
        tune_first=tune_first,
    )


def _experiments(records: Sequence[str]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the experiments by name, in their order: each run's name and its record's link."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in dict.fromkeys(records):
        home, name = posixpath.split(path)
        home = posixpath.basename(home)
        link = path if path.endswith(".json") else f"{path}/{RECORD_FILE}"
        if (packed := Address.of(path)) is not None:
            home, name = f"{_address(str(packed.folder))}:{packed.name}", f"seed{packed.seed}"
            link = f"{packed.folder}/{RECORDS}"
        found.setdefault(home, []).append((name, _address(link)))
    return list(found.items())
