"""Two small studies for tests of the queue, and the scores of their runs."""

from normlab.commands import study as command
from normlab.studies.load import load_study

STUDY = """\
# normlab study run {name}
# Norms, for tests.
article: article 1
table: Norms
claims: [1]
rows: {rows}
grid: {{}}
columns: [test/bleu]
article_values: {{}}
scales:
  smoke: {{overrides: [task=toy], seeds: {seeds}, minutes: 0.5, data: the built-in corpus}}
"""
TUNING = """smoke:
    tuning:
      {key: optim.lr, values: [1e-3, 2e-3, 4e-3], seeds: [101], score: valid/bleu}
    overrides: [task=toy, budget.steps=100]
    seeds: [1, 2]
    minutes: 0.5
    data: the built-in corpus
  other: {overrides: [task=toy]"""
"""The scale `smoke` with a tuning; it replaces the line of `smoke` up to the overrides."""


def plan(place, of, seeds=range(1, 13)):
    for name in ("one", "two"):
        study = load_study(name, place.folder / "configs")
        place.plan(study.planned("smoke", seeds=list(seeds)), of)


def bleu(gap, noise=0.1):
    """Return the scores of runs: ln is better than the others by a gap, plus noise."""

    def of(run):
        own = 0.0 if run.row == "ln" else gap + noise * (-1) ** run.seed
        return {"scores": {"test/bleu": 30.0 + run.seed / 1000 - own}}

    return of


def run_queue(capsys, *argv, budget="1h"):
    verb, *more = ["plan"] if "--commands" in argv else ["run", "--budget", budget]
    code = command.main([verb, *argv, "--processes", "1", *more])
    return code, capsys.readouterr().out
