"""Ten thousand made-up runs, for measuring how fast they are listed and compared.

They are copies of real records with other settings, seeds and scores, in the folders that real runs
leave: settings like those of a sweep, and a few runs that diverged.
"""

import copy
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count as counter
from itertools import cycle, product
from pathlib import Path
from typing import Any

import yaml

from normlab.records.record import Outcome, RunRecord, Score
from normlab.records.store import CONFIG_FILE, RECORD_FILE, RUNS_FILE, RunStore, run_id
from normlab.registry import CONFIG_DIR
from normlab.reports import manifest
from normlab.reports.published import FORMAT, write
from normlab.studies import Study, load_study

STUDY = "bert_norms"
SCALE = "cpu"
_NORMS = ("ln", "bn", "rms", "in", "none")
_PLACEMENTS = ("pre", "post")
_SIZES = (8, 16, 32, 64, 128)
_DIVERGED = 0.03  # share of the runs
_NOISE = 0.02  # of every score, relative


def examples(results: Path) -> list[RunRecord]:
    """Return the first finished run of each folder of results; ValueError where there is none."""
    stores = (RunStore(folder) for folder in sorted(results.glob("*")))
    found = [store.records(status="finished")[:1] for store in stores]
    if not any(found):
        raise ValueError(f"no finished run below {results}: name other results with --like FOLDER")
    return [record for first in found for record in first]


def made_up(like: Sequence[RunRecord], *, count: int, seeds: int = 3) -> Iterator[RunRecord]:
    """Yield `count` different runs: settings like those of a sweep, each with some seeds."""
    rng = random.Random(0)
    settings = ((n, *axes) for n in counter() for axes in product(_SIZES, _NORMS, _PLACEMENTS))
    nodes = {name: _node("norm", name) for name in _NORMS}
    nodes |= {name: _node("placement", name) for name in _PLACEMENTS}
    made = 0
    for (round_, size, norm, placement), base in zip(settings, cycle(like), strict=False):
        config = copy.deepcopy(base.config)
        config["choices"] |= {"norm": norm, "placement": placement}
        config |= {"norm": nodes[norm], "placement": nodes[placement], "batch_size": size}
        config["optim"] = {**config["optim"], "lr": round(1e-4 * 1.05**round_, 9)}
        for seed in range(1, seeds + 1):
            if made == count:
                return
            yield _varied(base, {**config, "seed": seed}, rng)
            made += 1


def _node(group: str, option: str) -> dict[str, Any]:
    return yaml.safe_load((CONFIG_DIR / group / f"{option}.yaml").read_text("utf-8"))


def _varied(base: RunRecord, config: dict[str, Any], rng: random.Random) -> RunRecord:
    diverged = rng.random() < _DIVERGED
    scores = {
        name: replace(score, value=score.value * (1 + rng.gauss(0, _NOISE)))
        for name, score in base.scores.items()
    }
    return replace(
        base,
        run_id=run_id(config),
        seed=config["seed"],
        config=config,
        outcome=Outcome("diverged", 100, "the loss is nan", "encoder.0.ffn")
        if diverged
        else replace(base.outcome, status="finished"),
        scores=_of_validation(scores) if diverged else scores,
    )


def _of_validation(scores: Mapping[str, Score]) -> dict[str, Score]:
    return {name: score for name, score in scores.items() if name.startswith("valid/")}


def write_runs(root: Path, records: Iterable[RunRecord]) -> None:
    """Write run folders as runs leave them: record, config, log and checkpoints."""
    store = RunStore(root)
    for record in records:
        folder = store.run_dir(record.config)
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "checkpoints" / "best-loss.pt").touch()
        (folder / CONFIG_FILE).write_text(json.dumps(record.config), "utf-8")
        (folder / "metrics.jsonl").write_text('{"step": 1, "train/loss": 9.0}\n', "utf-8")
        # Not by the store: it would wait for the disk each time.
        (folder / RECORD_FILE).write_text(record.to_json(), "utf-8")


def write_study(root: Path, records: Iterable[RunRecord]) -> None:
    """Write records as a published study whose grid has as many points as it takes."""
    study = load_study(STUDY)
    folder = root / STUDY / SCALE
    entries: list[dict[str, Any]] = []
    for record in records:
        row = study_row(study, record)
        if row is None:
            continue
        at = f"batch_size={record.config['batch_size']} lr={record.config['optim']['lr']}"
        place = Path("records", record.run_id, RECORD_FILE)
        (folder / place).parent.mkdir(parents=True)
        (folder / place).write_text(record.to_json(), "utf-8")
        entry = {"row": row, "point": f"placement={record.choice('placement')} {at}"}
        entries.append({**entry, "seed": record.seed, "record": place.as_posix()})
    entries.sort(key=lambda entry: (entry["point"], list(study.rows).index(entry["row"])))
    content = {"format": FORMAT, "study": STUDY, "scale": SCALE, "runs": entries}
    (folder / RUNS_FILE).write_text(json.dumps(content), "utf-8")
    write(study, folder)
    manifest.write(root)


def study_row(study: Study, record: RunRecord) -> str | None:
    """Return the row of a study that a run would be in by its norm; None for none."""
    norm = str(record.choice("norm"))
    return next((row for row, own in study.rows.items() if own == (f"norm={norm}",)), None)


def commands(runs: Path, results: Path) -> list[list[str]]:
    """Return the commands that are measured."""
    place = ["--runs-dir", str(runs)]
    return [
        ["ls", "runs", *place],
        ["compare", *place],
        ["compare", "--where", "norm=bn", *place],
        ["claims", *place],
        ["report", "--from", str(results), "--check"],
    ]
