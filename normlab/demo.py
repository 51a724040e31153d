"""A demonstration of LN, BN and no norm on the built-in corpus, and of why they differ.

Every sentence about the norms follows from the values that the demo has just measured.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from normlab.errors import UserError
from normlab.formats import share
from normlab.metrics.baseline import at_baseline
from normlab.records.files import atomic_write
from normlab.records.packed import Key
from normlab.records.record import RunRecord
from normlab.records.store import RECORD_FILE, read_record
from normlab.reports.legend import Note
from normlab.studies.process_pool import LOG_FILE, RunsInOrder, RunToStart, run_all
from normlab.studies.runs_display import RunsDisplay
from normlab.terminal import at_work

_NORMS = {"ln": "layer norm", "none": "no norm", "bn": "batch norm"}
_SETTINGS = (
    *("task=toy", "precision=fp32", "schedule.warmup=60", "validate.every=100"),
    *("validate.best=false", "task.test_search.beam=1", "probe=[]", "observe.log_every=20"),
    # The maximum length of a translation, without which a barely trained model keeps generating.
    *("task.valid_search.length_offset=10", "task.test_search.length_offset=10"),
    *("observe.study=demo", "runs_dir=demo"),  # not in runs/, which `normlab compare` reads
)
_USUAL = ("optim.lr=1e-3", "budget.steps=400")
_DEEP = ("model.depth=6", "optim.lr=2e-3", "budget.steps=200")
_CARE = "This is one seed, and the order depends on the learning rate and the number of steps"
_NATS, _UNITS = 0.01, 1.0  # smaller differences in loss and BLEU are not mentioned
_MOVED = 1e-3  # an output that changes by less, relative to its size, counts as unchanged
COLUMNS = ("", "BLEU", "loss, running", "loss, batch", "moves, train", "moves, eval")


class Measured(NamedTuple):
    """A norm's run, and what was measured on its model. The values are NaN if the run diverged.

    `running` and `batch` are the loss on held-out sentences with running and with batch statistics,
    in nats per token. `training` and `evaluation` are the shares by which a sentence's output
    changes in each mode when the rest of its batch changes (see the question `batch_mates`).
    """

    name: str
    record: RunRecord
    running: float = math.nan
    batch: float = math.nan
    training: float = math.nan
    evaluation: float = math.nan

    @property
    def bleu(self) -> float:
        """BLEU on the test split, from 0 to 100."""
        return self.record.scores["test/bleu"].value


@dataclass(frozen=True)
class Demo:
    """The runs of a demo, one per norm.

    `left` are the runs that have not ended, and `config` is the config of the first run. `settings`
    are the settings that the user added.
    """

    deep: bool
    settings: Sequence[str]
    runs: Sequence[RunToStart]
    left: Sequence[RunToStart]
    config: Mapping[str, Any]

    def train(self) -> None:
        """Train the runs that have not ended, with a live table.

        By default, all runs are trained at the same time, even on fewer cores, so that no core is
        idle while the last run finishes. Raises UserError with the reason if a run fails.
        """
        at_a_time = self.config["observe"]["processes"] or len(self.left)
        with _Progress(at_a_time) as shown:
            ended = run_all(RunsInOrder(self.left), at_a_time, show=shown)
        for done in ended:
            if done.status:
                log = done.run.folder / LOG_FILE
                raise UserError(f"{done.run.name}: {done.last_line} ({log})")

    def measured(self) -> "list[Measured]":
        """Return each run's measurements. All runs must have ended."""
        return [_measured(run) for run in self.runs]

    def conclusions(self, results: "Sequence[Measured]") -> list[str]:
        """Return the conclusions from the measurements, followed by a caveat."""
        another = "deep lr=1e-3" if self.deep else "steps=200"
        advice = "" if self.settings else f": try `normlab demo {another}`"
        return [*sentences(results), f"{_CARE}{advice}."]

    def write_page(
        self, results: "Sequence[Measured]", paragraphs: Sequence[str], command: str
    ) -> Path:
        """Write the page with the table and the curves, and return its path.

        `command` is the command that recreates the page.
        """
        page = Path(self.config["runs_dir"], "demo-deep.html" if self.deep else "demo.html")
        with atomic_write(page) as file:
            file.write(_page(results, self.runs, paragraphs, command))
        return page


def plan(settings: Sequence[str], *, deep: bool) -> Demo:
    """Return the demo with the user's settings.

    Raises UserError for a setting that the demo itself chooses.
    """
    from normlab.config.compose import compose, written_out
    from normlab.config.experiments import EXPERIMENT
    from normlab.config.overrides import check_given_once, typed, with_full_keys
    from normlab.training.run_folder import RunFolder

    check_given_once(settings)
    extra = written_out(with_full_keys(settings))
    typed_values = typed(extra)
    if EXPERIMENT in typed_values:
        raise UserError("the demo accepts only key=value; use normlab train my.yaml for a file")
    for key in ("norm", "task"):
        if key in typed_values:
            setting = f"{key}={typed_values[key]}"
            problem = f"the demo chooses the {key} itself, so {setting} cannot be set"
            raise UserError(f"{problem}; to choose it, use normlab train {setting}")
    usual = [*_SETTINGS, *(_DEEP if deep else _USUAL)]
    usual = [text for text in usual if text.partition("=")[0] not in typed_values]
    folders: dict[RunToStart, RunFolder] = {}
    for norm, name in _NORMS.items():
        overrides = (f"norm={norm}", *usual, *extra)
        folder = RunFolder(compose(overrides))
        folders[RunToStart(name, overrides, folder.folder)] = folder
    left = [run for run, folder in folders.items() if folder.finished(processes=1) is None]
    return Demo(deep, settings, [*folders], left, next(iter(folders.values())).config)


class _Progress(RunsDisplay):
    """The live table of the runs or, in a pipe, one line every few seconds."""

    def say(self, line: str) -> None:
        pass


def _measured(run: RunToStart) -> Measured:
    """Return the measurements of a run that has ended. They are cached in the run's folder."""
    record, values = read_record(run.folder), run.folder / "demo.json"
    if not record.finished:
        return Measured(run.name, record)
    if not values.is_file() or values.stat().st_mtime < (run.folder / RECORD_FILE).stat().st_mtime:
        with at_work(f"examining {run.name}"), atomic_write(values) as file:
            json.dump(_examined(run.folder), file)
    return Measured(run.name, record, *json.loads(values.read_bytes()))


def _examined(folder: Path) -> list[float]:
    """Return `running`, `batch`, `training` and `evaluation` of `Measured` for a run's model."""
    from normlab.inspection.model.findings import inspect_run

    results = inspect_run(folder, ("statistics", "batch_mates"))
    loss, values = results["statistics"].values["loss"], results["batch_mates"].values["values"]
    running, batch = loss.get("running", loss.get("eval")), loss.get("batch", loss.get("training"))
    return [running, batch, *(max(values[mode].values()) for mode in ("training", "eval"))]


# What is shown ------------------------------------------------------------------------------------


def rows(results: Sequence[Measured]) -> list[list[str]]:
    """Return the rows of the table: one per norm, and the BLEU of copying the source."""
    table: list[list[str]] = []
    for each in results:
        cells = ["diverged", *"----"]
        if each.record.finished:
            scores = f"{each.bleu:.1f}", f"{each.running:.2f}", f"{each.batch:.2f}"
            cells = [*scores, _moved_by(each.training), _moved_by(each.evaluation)]
        table.append([each.name, *cells])
    return [*table, ["copy the source", f"{results[0].record.floors['bleu']:.1f}", *"----"]]


def _moved_by(value: float) -> str:
    return share(value, smallest=_MOVED)


def notes(results: Sequence[Measured]) -> list[Note]:
    """Return the notes on the table's columns."""
    guess = _guess(results)
    return [
        Note(
            "loss: nats per token on unseen sentences, with running statistics, as in evaluation, "
            f"and with batch statistics, as in training; {guess} for guessing words",
            f"loss: nats per token on unseen sentences; {guess} for guessing words",
        ),
        Note.short("moves: the change of a sentence's output when the rest of its batch changes"),
    ]


def sentences(results: Sequence[Measured]) -> list[str]:
    """Describe which norms train, how well, and how batch norm's output depends on the batch."""
    parts = [
        f"with {each.name} training diverged at step {each.record.outcome.step}"
        for each in results
        if not each.record.finished
    ]
    ended = [each for each in results if each.record.finished]
    trained = [each for each in ended if not at_baseline([each.record], "test/loss")]
    if stuck := [each for each in ended if each not in trained]:
        guess = _guess(results)
        parts.append(
            f"with {_listed(stuck)} the loss is not clearly below the loss of guessing words "
            f"({guess})"
        )
    if trained:
        trained.sort(key=lambda each: each.running)
        first, *others = (f"{each.name} ({each.running:.2f})" for each in trained)
        behind = f", before {' and '.join(others)}" if others else ""
        parts.append(f"on unseen sentences the loss is lowest with {first}{behind}")
        most = max(trained, key=lambda each: each.bleu)
        if most.bleu - trained[0].bleu >= _UNITS:
            bleu = f"{most.bleu:.1f}; {trained[0].name} {trained[0].bleu:.1f}"
            parts[-1] += f", but BLEU is highest with {most.name} ({bleu})"
    text = "; ".join(parts)
    return [f"{text[0].upper()}{text[1:]}.", *_of_batches(results)]


def _of_batches(results: Sequence[Measured]) -> list[str]:
    """Describe how outputs depend on the batch. Return [] if batch norm diverged."""
    bn = next(each for each in results if each.name == _NORMS["bn"])
    if not bn.record.finished:
        return []
    if bn.training < _MOVED:
        return ["Here no sentence's output changes with the rest of its batch."]
    same = [each for each in results if each.training < _MOVED]
    text = "In training, batch norm lets the other sentences of a batch change a sentence's output"
    text += f" by {_moved_by(bn.training)}" + (f" ({_listed(same)}: 0 %)" if same else "")
    if bn.evaluation >= _MOVED:
        return [f"{text}, and in evaluation by {_moved_by(bn.evaluation)}."]
    gap = bn.running - bn.batch
    how = f"{abs(gap):.2f} {'higher' if gap > 0 else 'lower'}" if abs(gap) >= _NATS else "the same"
    used = "in evaluation it uses running statistics instead, which ends this"
    used += f", {'but' if gap >= _NATS else 'and'} its loss is {how}"
    return [f"{text}; {used} ({bn.running:.2f} instead of {bn.batch:.2f})."]


def _guess(results: Sequence[Measured]) -> str:
    """Return the loss of guessing words by their frequency."""
    return f"{results[0].record.floors['loss']:.2f}"


def _listed(results: Sequence[Measured]) -> str:
    *names, last = (each.name for each in results)
    return f"{', '.join(names)} and {last}" if names else last


def _page(
    results: Sequence[Measured], runs: Sequence[RunToStart], paragraphs: Sequence[str], command: str
) -> str:
    """Return the page with the sentences, the table and the curves."""
    from normlab.reports.figures.line_styles import row_styles
    from normlab.reports.figures.paper_figures import KINDS
    from normlab.reports.pages.chart_json import charts_of
    from normlab.reports.pages.rendering import page
    from normlab.reports.runs import Run, rows_of_run

    with_curves = [
        Run(Key(each.name, "", each.record.seed), each.record, rows_of_run(run.folder))
        for each, run in zip(results, runs, strict=True)
    ]
    panels, styles = KINDS["loss"].panels(with_curves), row_styles(with_curves)
    config = results[0].record.config
    facts = {
        "text": "built-in German-English sentences",
        "layers": f"{config['model']['encoder_layers']} + {config['model']['decoder_layers']}",
        "steps": f"{config['budget']['steps']:,}",
        "learning rate": f"{config['optim']['lr']:g}",
        "seed": str(config["seed"]),
    }
    shown = {
        "rows": rows(results),
        "said": paragraphs,
        "guess": _guess(results),
        "command": command,
    }
    drawn = {"panels": panels, "styles": [*styles.values()]}
    about = {"facts": [(name, [text]) for name, text in facts.items()]}
    return page("demo.html", charts_of(panels, styles, {}), **shown, **drawn, **about)
