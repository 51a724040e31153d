"""The page of the ledger for a browser, with filters, evidence and links."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath

from normlab.claims.claim import DOCUMENTS, Claim
from normlab.claims.ledger import VERDICTS, Decided, Entry, Outcome
from normlab.claims.markdown import (
    CARE,
    MEANINGS,
    NOTES,
    TITLE,
    WRITTEN,
    address,
    p_corrected,
    p_found,
    part_text,
    seeds_text,
    tune_first,
)
from normlab.records.store import RECORD_FILE
from normlab.reports.page import page as shell
from normlab.reports.page import signed


@dataclass(frozen=True)
class Experiment:
    """A folder of runs: its name, and each seed's with the address of its record."""

    name: str
    seeds: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Shown:
    """An endpoint as it is shown; `means` is what `found` was made of, `why` what is open.

    `command` would measure more, after `first`.
    """

    verdict: str
    grade: str
    part: str
    asked: str
    found: str
    means: str
    why: str
    seeds: str
    p: str
    corrected: str
    excluded: tuple[str, ...]
    first: str
    first_why: str
    command: str
    cost: str
    experiments: tuple[Experiment, ...]


@dataclass(frozen=True)
class ShownPart:
    """A part: its statement, its one primary endpoint, and what is secondary."""

    name: str
    statement: str
    primary: Shown
    secondary: tuple[Shown, ...]


@dataclass(frozen=True)
class ShownClaim:
    """A claim as it is shown."""

    claim: Claim
    verdict: str
    grades: str
    by_parts: str
    parts: tuple[ShownPart, ...]
    secondary: tuple[Shown, ...]
    see: tuple[tuple[str, str], ...]


def page(entries: Sequence[Entry], *, text: str) -> str:
    """Return the whole page, the same bytes for the same evidence.

    `text` is the name of the Markdown page, which lies beside this one.
    """
    verdicts = Counter(entry.verdict for entry in entries)
    documents = Counter(name for entry in entries for name in entry.claim.documents)
    return shell(
        "claims.html",
        charts=None,
        also=("claims.css", "claims.js"),
        title=TITLE,
        written=WRITTEN,
        care=CARE,
        notes=NOTES,
        verdicts=[(name, verdicts[name], MEANINGS[name]) for name in VERDICTS],
        documents=[(name, documents[name]) for name in DOCUMENTS if documents[name]],
        claims=[_claim(entry) for entry in entries],
        text=text,
    )


def _claim(entry: Entry) -> ShownClaim:
    parts = tuple(_part(each) for each in entry.parts)
    return ShownClaim(
        claim=entry.claim,
        verdict=entry.verdict,
        grades=entry.grades,
        by_parts=entry.by_parts,
        parts=parts,
        secondary=tuple(each for part in parts for each in part.secondary),
        see=tuple((path, address(path)) for path in entry.claim.see),
    )


def _part(decided: Decided) -> ShownPart:
    name = decided.part.name.replace("_", " ")
    return ShownPart(
        name=name,
        statement=part_text(decided.part),
        primary=_shown(name, decided.primary),
        secondary=tuple(_shown(name, outcome) for outcome in decided.secondary),
    )


def _shown(part: str, outcome: Outcome) -> Shown:
    found = outcome.finding
    first, why = tune_first(outcome)
    return Shown(
        verdict=outcome.verdict,
        grade=outcome.grade,
        part=part,
        asked=outcome.question,
        found=signed(found.found),
        means=signed(found.detail),
        why=signed(outcome.reason),
        seeds=seeds_text(outcome),
        p=p_found(outcome),
        corrected=p_corrected(outcome),
        excluded=found.excluded,
        first=first,
        first_why=why,
        command=found.command or "",
        cost=found.cost or "",
        experiments=tuple(_experiments(found.records)),
    )


def _experiments(records: Sequence[str]) -> list[Experiment]:
    """Join the folders of runs that lie in one, in their order; a report stands for itself."""
    paths = [PurePosixPath(path) for path in dict.fromkeys(records)]
    return [
        Experiment(home.name, tuple((path.name, _address(path)) for path in members))
        for home, members in groupby(paths, key=lambda path: path.parent)
    ]


def _address(path: PurePosixPath) -> str:
    return address(str(path if path.suffix == ".json" else path / RECORD_FILE))
