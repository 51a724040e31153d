"""The published results that the articles refer to: parts of claims, findings of checks, runs."""

from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path

from normlab.claims.evidence import COMPUTED, CheckFinding, read_computed
from normlab.claims.ledger_file import LEDGER, SavedClaim, SavedPart, read_ledger
from normlab.errors import UserError
from normlab.records.packed import RECORDS, pack
from normlab.records.pairs import Experiment

_INSTALLED = "The results come with a checkout of normlab: pass its folder with --results"


class Results:
    """The published results in a folder. Each file is read when a cell first needs it.

    `claims` are those of the folder's ledger by number, unless others are given.
    """

    def __init__(self, folder: Path, claims: Mapping[int, SavedClaim] | None = None) -> None:
        self.folder = folder
        self.experiment = cache(self._experiment)
        self._claims = claims

    @cached_property
    def claims(self) -> Mapping[int, SavedClaim]:
        return read_ledger(self.folder) if self._claims is None else self._claims

    @cached_property
    def checks(self) -> Mapping[str, list[CheckFinding]]:
        return read_computed(self.folder / COMPUTED)

    def part(self, name: str) -> SavedPart:
        """Return a part of the ledger by claim and name, such as `2.worse`."""
        claim, _, part = name.partition(".")
        known = claim.isdecimal() and self.claims.get(int(claim))
        parts = {each.name: each for each in known.parts} if known else {}
        if part not in parts:
            choices = f"; parts of claim {claim}: {', '.join(parts)}" if parts else ""
            raise UserError(f"{self.folder / LEDGER} has no part {name}{choices}")
        return parts[part]

    def claim_of(self, part: str) -> SavedClaim:
        """Return the claim of a part that exists."""
        return self.claims[int(part.partition(".")[0])]

    def place(self, part: str) -> str:
        """Return the numbers of claim and part, such as `2.1`."""
        return f"{part.partition('.')[0]}.{self.part(part).part}"

    def claim_of_check(self, check: str) -> int | None:
        """Return the first claim with a part that a check decides, or None if there is none."""
        claims = self.claims.values()
        return next((c.id for c in claims for p in c.parts if p.source.check == check), None)

    def finding(self, check: str, name: str) -> CheckFinding:
        """Return a finding by check and name.

        For an unknown name, raise a UserError that lists all.
        """
        by_name = {each.name: each for each in self.checks.get(check, ())}
        if name not in by_name:
            cure = f"; choose from {', '.join(by_name)}" if by_name else f". {_INSTALLED}"
            at = f"{self.folder / COMPUTED}: {check} has no finding {name!r}"
            raise UserError(f"{at}{cure}")
        return by_name[name]

    def place_of_finding(self, check: str, name: str) -> str:
        """Return a check with the number of its finding, such as `modes.mismatch 1`."""
        return f"{check} {self.checks[check].index(self.finding(check, name)) + 1}"

    def _experiment(self, of: str, row: str, at: str) -> Experiment:
        """Return the seeds of a row of a published study. Raise UserError if there are none."""
        folder = self.folder / of
        if not (folder / RECORDS).is_file():
            raise UserError(f"{folder / RECORDS} is missing. {_INSTALLED}")
        runs = pack(folder).records
        records = [r for key, r in runs.items() if r and (key.row, key.point) == (row, at)]
        if not records:
            names = ", ".join(dict.fromkeys(key.name for key in runs))
            raise UserError(f"{folder}: no run of {f'{row} {at}'.strip()!r}; choose from {names}")
        return Experiment.of(records)
