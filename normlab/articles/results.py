"""The published results that the articles refer to: parts of claims, findings of checks, runs."""

import json
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from normlab.claims.evidence import CheckFinding, read_computed
from normlab.errors import UserError
from normlab.records.packed import RECORDS, pack
from normlab.records.pairs import Experiment

_INSTALLED = "the results are in a checkout of normlab: name its folder with --results"


class Results:
    """The published results in a folder; each file is read when a cell first needs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.experiment = cache(self._experiment)

    @cached_property
    def claims(self) -> dict[int, Mapping[str, Any]]:
        """The claims of the ledger by number; UserError if there is no ledger."""
        path = self.folder / "claims.json"
        try:
            return {claim["id"]: claim for claim in json.loads(path.read_text("utf-8"))}
        except FileNotFoundError:
            raise UserError(f"{path}: missing; {_INSTALLED}") from None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UserError(
                f"{path}: damaged ({error}); normlab claims --write writes it"
            ) from None

    @cached_property
    def checks(self) -> Mapping[str, list[CheckFinding]]:
        return read_computed(self.folder / "computed.json")

    def part(self, name: str) -> Mapping[str, Any]:
        """Return a part of the ledger by claim and name, such as `2.worse`."""
        claim, _, part = name.partition(".")
        claim_entry = self.claims.get(int(claim), {}) if claim.isdecimal() else {}
        names = {each["name"]: each for each in claim_entry.get("parts", ())}
        if part not in names:
            choices = f"; parts of claim {claim}: {', '.join(names)}" if names else ""
            raise UserError(f"no part {name} in {self.folder / 'claims.json'}{choices}")
        return names[part]

    def check(self, name: str) -> CheckFinding:
        """Return a finding by its check and number, such as `modes.mismatch 1`."""
        check, _, number = name.partition(" ")
        findings = self.checks.get(check, [])
        if not number.isdecimal() or not 1 <= int(number) <= len(findings):
            choices = f"; {check} has {len(findings)}" if findings else f"; {_INSTALLED}"
            raise UserError(f"no finding {name} in {self.folder / 'computed.json'}{choices}")
        return findings[int(number) - 1]

    def _experiment(self, of: str, row: str, at: str) -> Experiment:
        """Return the seeds of a row of a published study; UserError if there are none."""
        folder = self.folder / of
        if not (folder / RECORDS).is_file():
            raise UserError(f"{folder / RECORDS}: missing; {_INSTALLED}")
        runs = pack(folder).records
        records = [r for key, r in runs.items() if r and (key.row, key.point) == (row, at)]
        if not records:
            names = ", ".join(dict.fromkeys(key.name for key in runs))
            raise UserError(f"{folder}: no run of {f'{row} {at}'.strip()!r}; choose from {names}")
        return Experiment.of(records)
