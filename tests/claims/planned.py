"""Find the runs that the committed claims would use once a study has run."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from msgspec.structs import replace

from normlab.claims.claim import Claim, load_all
from normlab.config.folders import CONFIG_DIR
from normlab.records.record import RunRecord, Score
from normlab.records.store import run_id
from tests.claims.handmade_study import run, runs_of
from tests.records.examples import changed


def endpoints(claim: Claim) -> list[Any]:
    """Return the endpoints of a claim, primary and secondary."""
    return [each for part in claim.parts for each in part.endpoints]


@cache
def by_study() -> dict[tuple[str, str], list[tuple[str, Any]]]:
    """Return the committed claims' files and endpoints by the study and scale that they use."""
    found: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    for claim in load_all(CONFIG_DIR / "claim"):
        for endpoint in endpoints(claim):
            if endpoint.family is not None:
                found.setdefault(endpoint.family, []).append((claim.path, endpoint))
    return found


def without_runs(study: str, scale: str, configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return messages on endpoints that cannot find their runs among five seeds of these configs.

    An endpoint may find no run, several per seed, or incompatible ones. Without this check, a typo
    would only show after all runs.
    """
    asked = by_study().get((study, scale), [])
    names = {name for _, endpoint in asked for name in endpoint.scores}
    names |= {endpoint.minus for _, endpoint in asked} - {None}
    made = [each for config in configs for each in _seeds(config, names)] if asked else []
    runs, problems = runs_of(CONFIG_DIR, made, (study, scale)), []
    for name, endpoint in asked:
        found = endpoint.judge(runs, "difference")
        decision = found.decision
        if decision.verdict == "not measured" and not str(decision.reason).startswith("other data"):
            problems.append(f"{name}: {decision.reason}; {'; '.join(found.basis.excluded)}")
    return problems


def _seeds(config: Mapping[str, Any], scores: Iterable[str]) -> list[RunRecord]:
    """Return five runs of a config, as if each had ended with these scores."""
    made = []
    for seed in range(1, 6):
        own = {**config, "seed": seed}
        found = {name: Score(30.0 + 0.01 * seed, True, 1000) for name in scores}
        made.append(changed(run(seed, "ln", None), run_id=run_id(own), config=own, scores=found))
        made[-1] = replace(made[-1], weights={"last": 100})
    return made
