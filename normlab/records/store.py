"""Decides where runs lie: `<root>/<task>-<norm>-<placement>-<fingerprint>/seed<k>/record.json`.

The path depends on the config alone, never on the time of day, so starting the same command again
finds the same folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from normlab.records.atomic import atomic_write
from normlab.records.fingerprint import fingerprint
from normlab.records.record import RunRecord

RECORD_FILE = "record.json"
CONFIG_FILE = "config.yaml"
_ENDS = ("encoder_norm", "decoder_norm")


def norm_label(choices: Mapping[str, Any]) -> str:
    """Name the norms of a model by their sites: `bn`, `bn+ln` (encoder+decoder), `ln+ffn_inner_bn`.

    A site without a choice of its own has the norm of the model; extra sites follow by name.
    """
    norm = choices.get("norm")
    ends = [choices.get(site) or norm for site in _ENDS]
    sites = sorted(key for key in choices if key.endswith("_norm") and key not in _ENDS)
    extra = [
        f"{site.removesuffix('_norm')}_{choices[site]}"
        for site in sites
        if choices[site] not in (None, "none")
    ]
    return "+".join(str(part) for part in [*dict.fromkeys(ends), *extra])


def run_label(config: Mapping[str, Any]) -> str:
    """Name an experiment, the same for all its seeds: `<task>-<norm>-<placement>-<fingerprint>`."""
    choices = config["choices"]
    parts = (choices["task"], norm_label(choices), choices["placement"], fingerprint(config))
    return "-".join(str(part).replace("/", "_") for part in parts)


def run_id(config: Mapping[str, Any]) -> str:
    """Name a run by a single word that trackers accept: the experiment and its seed."""
    return f"{run_label(config)}-seed{config['seed']}"


class RunStore:
    """The runs below one folder; `damaged` holds what the last reading of all could not read."""

    def __init__(self, root: Path | str) -> None:
        """Refer to a folder, which need not exist yet."""
        self.root = Path(root)
        self.damaged: list[tuple[Path, str]] = []

    def run_dir(self, config: Mapping[str, Any]) -> Path:
        """Return the folder of a run, which need not exist yet."""
        return self.root / run_label(config) / f"seed{config['seed']}"

    def write(self, record: RunRecord, run_dir: Path) -> Path:
        """Write a record as a whole or not at all; raises `OSError` naming the file."""
        run_dir.mkdir(parents=True, exist_ok=True)
        path = run_dir / RECORD_FILE
        text = record.to_json()
        with atomic_write(path) as file:
            file.write(text)
        return path

    def has(self, run_dir: Path) -> bool:
        """Tell whether a run has left a record."""
        return (run_dir / RECORD_FILE).is_file()

    def read(self, run_dir: Path) -> RunRecord:
        """Read the record of a run; raises `ValueError` naming the file and the damage."""
        return read_record(run_dir / RECORD_FILE)

    def records(self, **where: object) -> list[RunRecord]:
        """Read all records that fit, in the order of their paths.

        `where` maps names to values: an option's group (`norm` is compared with the whole label, so
        `norm="bn"` is batch norm everywhere and `norm="bn+ln"` the split), `status`, `fingerprint`,
        `seed` or a dotted key of the config. Damaged records are left out and listed in `damaged`.
        Raises `ValueError` for a name that no record has.
        """
        return select([record for _, record in self.entries()], where)

    def entries(self) -> list[tuple[Path, RunRecord]]:
        """Read all records with their run folders, in the order of their paths.

        Damaged records are left out and listed in `damaged`.
        """
        self.damaged = []
        found: list[tuple[Path, RunRecord]] = []
        for path in sorted(self.root.rglob(RECORD_FILE)):
            try:
                found.append((path.parent, read_record(path)))
            except ValueError as error:
                self.damaged.append((path, str(error)))
        return found


def read_record(path: Path) -> RunRecord:
    """Read a `record.json`; raises `ValueError` naming the file, what is wrong and what to do."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{path}: no such record; the run has not ended yet, or this is not a run folder"
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: damaged record, not UTF-8 at byte {error.start}; "
            "remove the file and start the run again"
        ) from None
    return RunRecord.from_json(text, origin=str(path))


def select(records: list[RunRecord], where: Mapping[str, object]) -> list[RunRecord]:
    """Keep the records that fit every `name: value` of `where`, as `RunStore.records` says."""
    for name in where:
        if records and not any(_lookup(record, name)[0] for record in records):
            raise ValueError(
                f"no record has the key {name!r}; allowed: {', '.join(_names(records))}, "
                "or a dotted key of the config such as optim.lr"
            )
    return [
        record
        for record in records
        if all(
            present and _text(value) == _text(wanted)
            for name, wanted in where.items()
            for present, value in [_lookup(record, name)]
        )
    ]


def _names(records: list[RunRecord]) -> list[str]:
    groups = {group for record in records for group in record.config.get("choices", {})}
    return sorted({*groups, "fingerprint", "norm", "seed", "status"})


def _lookup(record: RunRecord, name: str) -> tuple[bool, Any]:
    """Tell whether a record has a name, and its value."""
    choices = record.config.get("choices", {})
    match name:
        case "norm":
            return True, norm_label(choices)
        case "status":
            return True, record.outcome.status
        case "fingerprint":
            return True, fingerprint(record.config)
        case "seed":
            return True, record.seed
        case _ if name in choices:
            return True, choices[name]
        case _:
            return _config_value(record.config, name)


def _config_value(config: dict[str, Any], key: str) -> tuple[bool, Any]:
    node: object = config
    for part in key.split("."):
        children = cast("dict[str, object]", node) if isinstance(node, dict) else {}
        if part not in children:
            return False, None
        node = children[part]
    return True, node


def _text(value: object) -> str:
    """Write a value as the command line does, so that "32" finds 32 and "true" finds True."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)
