"""A handmade study with records and claims, for tests of how claims are decided."""

from typing import Any

import yaml
from msgspec.structs import replace

from normlab.claims.claim import load
from normlab.claims.evidence import EvidenceStore, RecordAt
from normlab.claims.ledger import check_plans, ledger, with_measurements
from normlab.records.record import Score
from tests.records.examples import record

STUDY = """# normlab study run made scale=small
# A study for tests.
article: article 1
table: "A table"
claims: [1]
rows:
  ln: [norm=ln]
  bn: [norm=bn]
  none: [norm=none]
grid: {grid}
columns: [test/bleu]
article_values: {{}}
scales:
  small:
    overrides: [task=toy, optim.lr=5e-4]
    seeds: [1, 2, 3, 4, 5]
    minutes: 6
    data: the built-in corpus
"""
BETTER = {"norm": "ln"}
WORSE = {"norm": "bn"}
PLACE = {"study": "made", "scale": "small", "score": "test/bleu"}
CONTRAST = {**PLACE, "better": BETTER, "worse": WORSE}
NOISE = (0.0, 0.2, -0.1, 0.1, -0.2, 0.15, -0.15, 0.05, 0.1, -0.1, 0.2, -0.2)


def configs(folder, grid="{}"):
    """Write the study into a folder of configs, and return the folder."""
    (folder / "study").mkdir(parents=True, exist_ok=True)
    (folder / "study" / "made.yaml").write_text(STUDY.format(grid=grid))
    (folder / "claim").mkdir(exist_ok=True)
    return folder


def run(seed: int, norm: str, bleu: float | None, **changes: Any):
    """Return a run that counts: clean code, last weights, and an untrained baseline of 3 BLEU."""
    own = {"weights": {"last": 100}, "floors": {"bleu": 3.0}, "scores": {}, "stability": {}}
    own = {name: changes.pop(name, value) for name, value in own.items()}
    environment = {"dirty": False, "device": "CPU", "device_type": "cpu"}
    environment |= changes.pop("environment", {})
    observe = {"study": "made"}
    made = record(
        seed=seed, norm=norm, bleu=bleu, environment=environment, observe=observe, **changes
    )
    made.scores.update({name: Score(value, False, 1000) for name, value in own["scores"].items()})
    made.stability.update(own["stability"])
    return replace(made, weights=own["weights"], floors=own["floors"])


def side(norm: str, mean: float, seeds: int = 5, *, noise: float = 1.0, **changes: Any):
    """Return the runs of a side, scattered around a mean. All runs of `ln` equal the mean."""
    own = 0.0 if norm == "ln" else noise
    return [run(k, norm, mean + own * NOISE[k - 1], **changes) for k in range(1, seeds + 1)]


def part(endpoint: dict[str, Any], assertion: str = "difference", name: str = "so", **more: Any):
    return {
        "name": name,
        "statement": "It is so.",
        "assertion": assertion,
        "endpoint": endpoint,
        **more,
    }


def contrast(margin: float = 0.5, assertion: str = "difference", **changes: Any):
    return part({"contrast": {**CONTRAST, "margin": margin, **changes}}, assertion)


def claim(folder, *parts: dict[str, Any], number: int = 1):
    """Write and load a claim with these parts."""
    content = {
        "id": number,
        "articles": ["article 1"],
        "statement": "It is so.",
        "answer": "True.",
        "chinese_answer": "成立。",
        "figure": None,
        "literature": "Unknown.",
        "parts": [{**each, "name": f"{each['name']}_{n}"} for n, each in enumerate(parts, 1)],
    }
    path = folder / "claim" / f"{number:02}_so.yaml"
    path.write_text(yaml.safe_dump(content))
    return load(path)


def runs_of(root, records, place=("made", "small"), **more: Any):
    """Return these records as the runs of a study."""
    runs = EvidenceStore(root, **more)
    for each in records:
        runs.add(place, RecordAt(each, each.run_id))
    return runs


def decided(folder, records, *parts: dict[str, Any], grid: str = "{}", **more: Any):
    """Return the ledger's entry of a claim with these parts, decided by these records."""
    root = configs(folder, grid)
    claims, evidence = [claim(root, *parts)], runs_of(root, records, **more)
    check_plans(claims, evidence)
    (entry,) = with_measurements(ledger(claims, evidence), evidence)
    return entry


def primary(folder, records, each: dict[str, Any], **more: Any):
    """Return the outcome of a claim's only part."""
    return decided(folder, records, each, **more).primary[0]
