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
    """The published results in a folder. Each file is read when it is first needed.

    `claims` are keyed by number. By default, they are read from the folder's ledger.
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
        """Return a part of a claim, given the claim's number and the part's name: `2.worse`."""
        claim, _, part = name.partition(".")
        known = claim.isdecimal() and self.claims.get(int(claim))
        parts = {each.name: each for each in known.parts} if known else {}
        if part not in parts:
            choices = f"; parts of claim {claim}: {', '.join(parts)}" if parts else ""
            raise UserError(f"{self.folder / LEDGER} has no part {name}{choices}")
        return parts[part]

    def claim_of(self, part: str) -> SavedClaim:
        """Return the claim that a part such as `2.worse` belongs to. The part must exist."""
        return self.claims[int(part.partition(".")[0])]

    def place(self, part: str) -> str:
        """Return the numbers of the claim and the part, such as `2.1` for `2.worse`."""
        return f"{part.partition('.')[0]}.{self.part(part).part}"

    def claim_of_check(self, check: str) -> int | None:
        """Return the number of the first claim that a check decides a part of, or None."""
        claims = self.claims.values()
        return next((c.id for c in claims for p in c.parts if p.source.check == check), None)

    def finding(self, check: str, name: str) -> CheckFinding:
        """Return a finding, given its check and its name.

        Raises a UserError that lists the findings if there is none with this name.
        """
        by_name = {each.name: each for each in self.checks.get(check, ())}
        if name not in by_name:
            cure = f"; choose from {', '.join(by_name)}" if by_name else f". {_INSTALLED}"
            at = f"{self.folder / COMPUTED}: {check} has no finding {name!r}"
            raise UserError(f"{at}{cure}")
        return by_name[name]

    def place_of_finding(self, check: str, name: str) -> str:
        """Return the name of a check and the number of its finding, such as `modes.mismatch 1`."""
        return f"{check} {self.checks[check].index(self.finding(check, name)) + 1}"

    def _experiment(self, of: str, row: str, at: str) -> Experiment:
        """Return the runs of a row at a point `at` of a published study `of`, STUDY/SCALE.

        Raises UserError if there are none.
        """
        folder = self.folder / of
        if not (folder / RECORDS).is_file():
            raise UserError(f"{folder / RECORDS} is missing. {_INSTALLED}")
        runs = pack(folder).records
        records = [r for key, r in runs.items() if r and (key.row, key.point) == (row, at)]
        if not records:
            names = ", ".join(dict.fromkeys(key.name for key in runs))
            raise UserError(f"{folder}: no run of {f'{row} {at}'.strip()!r}; choose from {names}")
        return Experiment.of(records)
