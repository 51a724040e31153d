"""The format of `card.json`, the file of a norm's report card, which is written and read here.

`normlab.inspection.card` makes cards; `pages/cards.py` shows them. Next to the file are the records
of the card's short runs, and its page.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from normlab.errors import UserError
from normlab.records.packed import pack
from normlab.records.record import RunRecord

FORMAT = "normlab.card/2"
CARD_FILE, PAGE_FILE = "card.json", "card.html"
FOLDER = "cards"


@dataclass(frozen=True)
class ShortRunValues:
    """The `values` of a finding on a task's short runs, which end after `steps` updates.

    `scores` has each score by seed, and `floors` the untrained baseline of each score that has one.
    By seed, `curves` has the validation losses by step, `diverged` the step at which the seed
    diverged, if it did, and `runs` the run id.
    """

    steps: int
    scores: Mapping[str, Mapping[str, Any]]
    higher_is_better: Mapping[str, bool]
    floors: Mapping[str, Any]
    curves: Mapping[str, Any]
    diverged: Mapping[str, int]
    runs: Mapping[str, str]

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "ShortRunValues":
        """Read the values of a card's finding. Raise KeyError if one is missing."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})

    def values(self) -> dict[str, Any]:
        """Return the values as a finding stores them."""
        return asdict(self)


class CardContent(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag=FORMAT):
    """The content of `card.json`.

    `norm` has the settings of the norm, and `findings` the entry of each question by its name.
    """

    name: str
    description: str
    overrides: Sequence[str]
    scale: str
    seeds: Sequence[int]
    norm: Mapping[str, Any]
    environment: Mapping[str, Any]
    findings: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The text of `card.json`."""
        content = msgspec.to_builtins(self)
        return json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"


@dataclass(frozen=True)
class Card:
    """A report card: the content of `card.json`, and the records of its short runs by run id."""

    content: CardContent
    records: Mapping[str, RunRecord]

    @classmethod
    def of(cls, content: CardContent, records: Iterable[RunRecord | None]) -> "Card":
        return cls(content, {record.run_id: record for record in records if record is not None})

    @property
    def name(self) -> str:
        return self.content.name

    @property
    def entries(self) -> dict[str, Any]:
        """The card's values on the board, keyed by column title."""
        findings = self.content.findings.values()
        return {title: value for each in findings for title, value in each["board"].items()}

    @property
    def sees_later_tokens(self) -> bool:
        """Whether the scores of held-out text change when it is processed token by token."""
        stepwise = self.content.findings.get("stepwise", {}).get("values", {})
        return "eval" in stepwise and not stepwise["eval"]["same"]

    def short_runs(self, task: str) -> ShortRunValues | None:
        """Return what the finding on a task reports about its short runs, or None without runs."""
        values = self.content.findings.get(task, {}).get("values", {})
        return ShortRunValues.read(values) if "scores" in values else None

    def records_of(self, task: str) -> list[RunRecord]:
        """Return the records of the short runs of a task."""
        runs = self.short_runs(task)
        run_ids = runs.runs.values() if runs else ()
        return [self.records[run_id] for run_id in run_ids if run_id in self.records]


def read_card(path: Path) -> Card:
    """Read a `card.json` and the records next to it. Raise UserError for a damaged file."""
    records = pack(path.parent).records.values()
    try:
        content = msgspec.json.decode(path.read_bytes(), type=CardContent)
        card = Card.of(content, records)
        _ = card.entries, [*map(card.short_runs, content.findings)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{path} is damaged or not a card ({error!r:.80}); recreate it with normlab norm card"
        ) from error
    return card
