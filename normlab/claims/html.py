"""Decides the page of the ledger for a browser, `results/claims.html`: filters, evidence, links."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath

from normlab.claims.claim import DOCUMENTS, Claim
from normlab.claims.evidence import VERDICTS, Evidence
from normlab.claims.ledger import Entry
from normlab.claims.reading import CARE, HOME, MEANINGS, NOTES, TITLE, WRITTEN, address
from normlab.claims.speed import Faster
from normlab.claims.timings import REPORT
from normlab.records.store import RECORD_FILE
from normlab.reports.html.page import page as shell

_NOISE = 1e-9  # figures are in float64: what is smaller is rounding, which machines do differently
_MINUS = re.compile(r"(?<![\w-])-(?=\d)")


@dataclass(frozen=True)
class Experiment:
    """A folder of runs: its name, and each seed's with the address of its record."""

    name: str
    seeds: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Piece:
    """A piece of evidence as it is shown; `means` and `figures` are what `found` was made of."""

    standing: str
    asked: str
    of: str
    found: str
    means: str
    figures: tuple[tuple[str, str], ...]
    n: int
    repeats: str
    experiments: tuple[Experiment, ...]


@dataclass(frozen=True)
class Shown:
    """A claim as it is shown: its evidence, what decides nothing apart, and what to type."""

    claim: Claim
    verdict: str
    strength: str
    measured: tuple[Piece, ...]
    open: tuple[Piece, ...]
    see: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]


def page(entries: Sequence[Entry], *, studies: Mapping[str, str], text: str) -> str:
    """Return the whole page, the same bytes for the same evidence.

    `studies` are those that exist, each with the command that runs it; `text` is the name of the
    Markdown page, which lies beside this one.
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
        claims=[_shown(entry, studies) for entry in entries],
        text=text,
    )


def _shown(entry: Entry, studies: Mapping[str, str]) -> Shown:
    return Shown(
        claim=entry.claim,
        verdict=entry.verdict,
        strength=entry.strength,
        measured=tuple(_piece(piece) for piece in entry.evidence if piece.measured),
        open=tuple(_piece(piece) for piece in entry.evidence if not piece.measured),
        see=tuple((path, address(path)) for path in entry.claim.see),
        commands=tuple(_commands(entry.claim, studies)),
    )


def _commands(claim: Claim, studies: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what to type, each with what it does."""
    show = f"normlab claims {claim.id}"
    made = [("show", show)]
    decide = show
    if claim.check is not None:
        decide = f"{show} --check"
        made.append(("compute", decide))
    if command := studies.get(claim.study or ""):
        made += [("measure", command), ("decide by those runs", f"{decide} --runs-dir runs")]
    if any(isinstance(comparison, Faster) for comparison in claim.comparisons):
        made.append(("time again", f"normlab bench norms --json {HOME}/{REPORT}"))
    return made


def _piece(piece: Evidence) -> Piece:
    found, _, means = piece.finding.partition(" (") if piece.records else (piece.finding, "", "")
    of = (piece.task, f"scale={piece.scale}" if piece.scale else None, piece.setting)
    return Piece(
        standing=piece.standing,
        asked=piece.question,
        of=" ".join(part for part in of if part),
        found=_signed(found),
        means=_signed(means.replace(")", "", 1)),
        figures=() if piece.kind in ("study", "timing") else _figures(piece.numbers),
        n=piece.n,
        repeats=piece.repeats,
        experiments=tuple(_files(piece) if piece.kind == "timing" else _experiments(piece.records)),
    )


def _figures(numbers: Mapping[str, float]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, _signed(f"{0.0 if abs(value) < _NOISE else value:.4g}"))
        for name, value in numbers.items()
    )


def _signed(text: str) -> str:
    return _MINUS.sub("\N{MINUS SIGN}", text)


def _files(piece: Evidence) -> list[Experiment]:
    """Return the report that a timing stands in."""
    paths = [PurePosixPath(path) for path in piece.records]
    return [Experiment(path.parent.name, ((path.name, address(str(path))),)) for path in paths]


def _experiments(folders: Sequence[str]) -> list[Experiment]:
    """Join the folders of runs that lie in one, in their order."""
    paths = [PurePosixPath(folder) for folder in dict.fromkeys(folders)]
    return [
        Experiment(
            home.name,
            tuple((path.name, address(str(path / RECORD_FILE))) for path in members),
        )
        for home, members in groupby(paths, key=lambda path: path.parent)
    ]
