"""How the seeds of a row trained, in words: how many diverged, their warnings and loss spikes."""

from statistics import median

from normlab.metrics.baseline import NOT_CLEAR, ON_PLATEAU, is_near_baseline, on_plateau
from normlab.records.pairs import Experiment
from normlab.records.store import SPIKE_COUNT
from normlab.reports.tables.comparison import count_diverged
from normlab.reports.tables.score_table import ScoreRow


def stability(experiment: Experiment, outcome: str) -> str:
    """Describe how stable the training of a row's seeds was, and warn about their scores.

    The text begins with `outcome`, such as `finished 3/3; diverged 0; median spikes 0`.
    """
    diverged = [] if count_diverged(experiment.records) else ["diverged 0"]
    spikes = _spikes(experiment)
    counted = "spikes not counted" if spikes is None else _counted(spikes, experiment)
    return "; ".join([outcome, *diverged, *_warnings(experiment), counted])


def ended_in_brief(row: ScoreRow) -> str:
    """Summarize how a row's seeds ended: `3/3`, or `2/3, 1 diverged, median spikes 4`."""
    if row.experiment is None:
        return row.outcome
    parts = [f"{sum(record.finished for record in row.records)}/{len(row.records)}"]
    if diverged := count_diverged(row.records):
        parts.append(f"{diverged} diverged")
    if spikes := _spikes(row.experiment):
        parts.append(_counted(spikes, row.experiment))
    return ", ".join(parts)


def _warnings(row: Experiment) -> list[str]:
    """Return warnings about a row: how many runs did not learn, and if models see the future."""
    runs, warnings = len(row.records), list[str]()
    if near := sum(map(is_near_baseline, row.records)):
        warnings.append(f"{near}/{runs} {NOT_CLEAR}")
    if stuck := sum(map(on_plateau, row.records)):
        warnings.append(f"{stuck}/{runs} {ON_PLATEAU}")
    if any(record.sees_future for record in row.records):
        warnings.append("sees the future")
    return warnings


def _spikes(experiment: Experiment) -> float | None:
    """Return the median number of loss spikes per run, or None if no run counted them."""
    counts = [r.stability[SPIKE_COUNT] for r in experiment.records if SPIKE_COUNT in r.stability]
    return median(counts) if counts else None


def _counted(spikes: float, experiment: Experiment) -> str:
    return f"{'median ' if len(experiment.records) > 1 else ''}spikes {spikes:g}"
