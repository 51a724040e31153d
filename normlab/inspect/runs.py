"""The questions of a card that take runs: how well they train, and what the model became."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

from normlab.config.compose import to_dict
from normlab.config.registry import instantiate
from normlab.config.sites import NORM_KEYS
from normlab.inspect.card import Examined
from normlab.inspect.model import MODES, Subject, subject_of_run
from normlab.inspect.question import Cell, Finding, Table, question, questions
from normlab.inspect.subject import Norm
from normlab.records.record import RunRecord, plain
from normlab.records.store import METRICS_FILE, RunStore, read_rows, series
from normlab.train.build import build_model, build_task
from normlab.train.run import train

if TYPE_CHECKING:
    from omegaconf import DictConfig

SEQUENCES = 4
FIRST_RATE = 1e-3
_UPWARDS = 2  # doublings before the rate is halved
_SCORES = ("test/nll", "test/bleu")


def carry_out(config: "DictConfig") -> RunRecord:
    """Return the record of a run, made now unless it is there; KeyboardInterrupt if interrupted."""
    record = train(config)
    if record.outcome.status == "interrupted":
        raise KeyboardInterrupt
    return record


@question("translation", of="card", stage="training")
def translation(examined: Examined) -> Finding:
    """How well does it learn to translate in a short run (task=toy)?

    The published cards used the earlier built-in corpus; a new card uses the one of today.
    """
    return short_runs(examined, "translation", {"test/nll": "toy nll", "test/bleu": "toy BLEU"})


@question("language_model", of="card", stage="training")
def language_model(examined: Examined) -> Finding:
    """How well does a causal language model learn in a short run (task=lm)?"""
    return short_runs(examined, "language_model", {"test/loss": "lm loss"})


@question("bert", of="card", stage="training")
def bert(examined: Examined) -> Finding:
    """How well does BERT learn in a short run (task=mlm)?"""
    return short_runs(examined, "bert", {"test/mlm_loss": "bert loss"})


@question("pictures", of="card", stage="training")
def pictures(examined: Examined) -> Finding:
    """How well does a residual network learn images in a short run (task=digits)?

    The norm is behind each convolution of a small network, which has no placement, no places of
    text and no padding. A norm that cannot be used there does not take part.
    """
    config = to_dict(examined.config("pictures"))
    task = build_task(config)
    batch = task.batch("train", range(8))
    try:
        task.losses(build_model(config, task), batch)
    except Exception as error:  # a norm's own code may raise anything
        said = (str(error).splitlines() or ["it does not say why"])[0]
        raised = f"on images the norm raises {type(error).__name__}: {said}"
        return Finding.none(said if isinstance(error, ValueError) else raised)
    titles = {"test/loss": "digits loss", "test/accuracy": "digits acc"}
    return short_runs(examined, "pictures", titles)


def short_runs(examined: Examined, task: str, titles: Mapping[str, str]) -> Finding:
    """Train the short runs of a task, one per seed.

    `titles` are the columns of the board by the names of their scores.
    """
    records: dict[int, RunRecord] = {}
    curves: dict[str, list[Any]] = {}
    for seed in examined.seeds(task):
        config = examined.config(task, seed=seed)
        records[seed] = carry_out(config)
        curves[str(seed)] = sorted(series(_metrics(config), "valid/loss"))
    scores: dict[str, dict[str, float]] = {name: {} for name in titles}
    floors: dict[str, float] = {}
    higher: dict[str, bool] = {}
    for name in titles:
        for seed, record in records.items():
            if name in record.scores:
                scores[name][str(seed)] = float(record.scores[name].value)
                higher[name] = record.scores[name].higher_is_better
            if (key := name.partition("/")[2]) in record.floors:
                floors[name] = float(record.floors[key])
    lost = [seed for seed, record in records.items() if record.outcome.status != "finished"]
    values = {
        "steps": examined.steps(task),
        "scores": scores,
        "higher_is_better": higher,
        "floors": floors,
        "curves": curves,
        "diverged": {str(seed): records[seed].outcome.step for seed in lost},
        "runs": {str(seed): record.run_id for seed, record in records.items()},
    }
    board: dict[str, Cell] = dict.fromkeys(titles.values(), f"diverged {len(lost)}/{len(records)}")
    if not lost:
        board = {title: fmean(scores[name].values()) for name, title in titles.items()}
    return Finding(_learned(values, len(records)), plain(values), board=board)


def _metrics(config: "DictConfig") -> Any:
    return read_rows(RunStore(config.runs_dir).run_dir(to_dict(config)) / METRICS_FILE)


def _learned(values: Mapping[str, Any], count: int) -> str:
    if lost := values["diverged"]:
        steps = ", ".join(f"seed {seed} at step {step}" for seed, step in lost.items())
        return f"diverged in {len(lost)} of {count} runs: {steps}"
    floors = {k: f" (untrained baseline {v:.4g})" for k, v in values["floors"].items()}
    parts = [
        f"{name} {fmean(scores.values()):.4g}{floors.get(name, '')}"
        for name, scores in values["scores"].items()
    ]
    seeds = f"mean of {count} seeds" if count > 1 else "one seed"
    return f"{', '.join(parts)} after {values['steps']} updates, {seeds}"


@dataclass(frozen=True)
class Trial:
    """A run at a rate: its losses, where it has them, whether it trains, and how it ended."""

    training: float | None
    validation: float | None
    trains: bool
    ended: str


@question("rate", of="card", stage="training")
def rate(examined: Examined) -> Finding:
    """What is the largest learning rate that trains?

    Short runs with a constant rate after a short warm-up: from 0.001 upwards, doubled until one
    does not train. Where the first does not, two larger ones are tried before smaller ones, as
    0.001 may be too small as well as too large. A run trains if the training loss of its last
    tenth is below that of the frequencies of words, which a model that only learned its biases
    has. The validation loss is listed too: in a run this short running statistics may lag behind.
    """
    tried: dict[float, Trial] = {}
    rate: float | None = FIRST_RATE
    while rate is not None and len(tried) < examined.sizes.most_rates:
        tried[rate] = _try(examined, rate)
        rate = next_rate(tried)
    largest = max((rate for rate, trial in tried.items() if trial.trains), default=None)
    is_open = largest is not None and 2 * largest not in tried
    steps = examined.sizes.rate_steps
    values = {
        "steps": steps,
        "largest": largest,
        "open": is_open,
        "losses": {f"{rate:g}": trial.validation for rate, trial in tried.items()},
        "training_losses": {f"{rate:g}": trial.training for rate, trial in tried.items()},
    }
    rows = [(rate, t.training, t.validation, t.ended) for rate, t in sorted(tried.items())]
    table = Table(("learning rate", "training loss", "validation loss", "how it ended"), rows)
    if largest is None:
        answer, text = f"none of {min(tried):g} to {max(tried):g} trains in {steps} updates", "none"
    else:
        bound = ", the largest that was tried" if is_open else f"; {2 * largest:g} does not"
        below = "training loss below that of word frequencies"
        answer = f"{largest:g}{bound} ({steps} updates, {below})"
        text = f"{largest:g}" + ("+" if is_open else "")
    return Finding(answer, values, table, board={"largest lr": text})


def next_rate(tried: Mapping[float, Trial]) -> float | None:
    """Return the rate to try next; None where one trains and twice it does not."""
    good = [rate for rate, trial in tried.items() if trial.trains]
    if good:
        return None if 2 * max(good) in tried else 2 * max(good)
    largest = max(tried)
    if largest < FIRST_RATE * 2**_UPWARDS and tried[largest].training is not None:
        return 2 * largest
    return min(tried) / 2


def _try(examined: Examined, rate: float) -> Trial:
    steps = examined.sizes.rate_steps
    config = examined.config(
        "translation",
        *(f"optim.lr={rate}", "schedule=constant", f"schedule.warmup={max(1, steps // 5)}"),
        *examined.sizes.rate,
        *(f"budget.steps={steps}", f"validate.every={steps}"),
        f"observe.log_every={max(1, steps // 10)}",
    )
    record = carry_out(config)
    if record.outcome.status != "finished":
        return Trial(None, None, trains=False, ended=_ended(record))
    _, training = series(_metrics(config), "train/loss")[-1]  # of the last tenth
    trains = training < record.floors["loss"]
    ended = "trains" if trains else "stays at the frequencies of words"
    return Trial(training, record.scores["valid/loss"].value, trains, ended)


@question("warmup", of="card", stage="trained")
def warmup(examined: Examined) -> Finding:
    """Does it train without a warm-up of the learning rate?"""
    changed = ["schedule.warmup=0"]
    return against_usual(examined, "with warm-up", "without", changed, "no warm-up")


@question("small_batch", of="card", stage="trained")
def small_batch(examined: Examined) -> Finding:
    """What does it lose with statistics of four sequences instead of the whole batch?

    Updates stay those of the usual run. Only the sequences that statistics are taken over are
    fewer: by `norm.ghost` where the norm has it, else by smaller micro-batches, accumulated.
    """
    config = to_dict(examined.config("translation"))
    sites = batch_sites(config)
    if not sites:
        return Finding.none("the norm takes no statistics from the batch")
    size = config["batch_size"]
    changed = [f"batch_size={SEQUENCES}", f"accumulate={size // SEQUENCES}"]
    if all("ghost" in config[site] for site in sites):
        changed = [f"{site}.ghost={SEQUENCES}" for site in sites]
    other = f"of {SEQUENCES}"
    return against_usual(examined, f"of {size}", other, changed, f"batch {other}")


def batch_sites(config: Mapping[str, Any]) -> list[str]:
    """Return the places of the config whose norms pool over the batch."""
    found = []
    for site in NORM_KEYS:
        if config.get(site) is not None:
            dim = config["model"]["ffn_dim" if site == "ffn_inner_norm" else "dim"]
            if "batch" in instantiate(config[site], site, Norm, dim=dim).pools:
                found.append(site)
    return found


def against_usual(
    examined: Examined, usual: str, other: str, changed: Sequence[str], title: str
) -> Finding:
    """Train the first translation run again with changed values, and compare the two.

    `usual` and `other` name the two in the table; `title` is the column of the board, which shows
    how much larger the loss became.
    """
    seed = examined.sizes.seeds[0]
    rows: list[Sequence[Cell]] = []
    for name, more in ((usual, ()), (other, changed)):
        record = carry_out(examined.config("translation", *more, seed=seed))
        scores = [record.scores.get(score) for score in _SCORES]
        values = [None if score is None else float(score.value) for score in scores]
        rows.append((name, *values, _ended(record)))
    (_, before, *_, ended), (_, after, *_, ended_other) = rows
    worse = None
    answer = f"{other}: {ended_other}; else: {ended}"
    if isinstance(before, float) and isinstance(after, float):
        worse = after - before
        answer = f"{_SCORES[0]} changes by {worse:+.3f}, to {after:.4g} (one seed)"
    finished = str(ended_other).startswith("finished")
    found = {"changed": list(changed), "seed": seed, "rows": rows}
    table = Table(("", *_SCORES, "how it ended"), rows)
    return Finding(answer, found, table, board={title: worse if finished else "diverged"})


def _ended(record: RunRecord) -> str:
    outcome = record.outcome
    where = f" in {outcome.layer}" if outcome.layer else ""
    return f"{outcome.status} at step {outcome.step}{where}"


def of_the_trained(examined: Examined, *names: str) -> dict[str, Finding]:
    """Return the answers about the translation run of the first seed; empty if it diverged."""
    subject = _trained_model(examined)
    return {each.name: each.ask(subject) for each in questions("model", names) if subject}


@lru_cache(maxsize=1)  # several questions ask the same model
def _trained_model(examined: Examined) -> Subject | None:
    config = examined.config("translation", seed=examined.sizes.seeds[0])
    if carry_out(config).outcome.status != "finished":
        return None
    return subject_of_run(RunStore(config.runs_dir).run_dir(to_dict(config)), [])


_DIVERGED = Finding.none("the translation run diverged, so there is no trained model")


@question("company", of="card", stage="trained")
def company(examined: Examined) -> Finding:
    """Do padding and the rest of the batch change the output of a sentence?"""
    found = of_the_trained(examined, "batch_mates", "padding")
    if not found:
        return _DIVERGED
    mates, padded = found.values()
    moved: dict[str, dict[str, float]] = {"other sentences": {}, "padding": {}}
    for mode in MODES:
        if not mates.why_not:
            moved["other sentences"][mode] = max(mates.values["values"][mode].values())
        if not padded.why_not:
            moved["padding"][mode] = max(x[-1] for x in padded.values["moved"][mode].values())
    rows = [(by, *(shares.get(mode) for mode in MODES)) for by, shares in moved.items()]
    by_mates, by_padding = (shares.get("training") for shares in moved.values())
    return Finding(
        f"other sentences: {mates.answer}; padding: {padded.answer}",
        {name: each.values for name, each in found.items()},
        Table(("moved by", "in training", "in evaluation"), rows),
        board={"mates": by_mates, "padding": by_padding},
    )


@question("inference", of="card", stage="trained")
def inference(examined: Examined) -> Finding:
    """What do running statistics cost, compared with the batch's own that training had?"""
    found = of_the_trained(examined, "statistics").get("statistics", _DIVERGED)
    gap = {} if found.why_not else {"train-eval gap": found.values.get("gap", 0.0)}
    return replace(found, board=gap)


@question("stepwise", of="card", stage="trained")
def stepwise(examined: Examined) -> Finding:
    """Does decoding token by token compute the same as whole sentences?"""
    found = of_the_trained(examined, "stepwise").get("stepwise", _DIVERGED)
    apart = {} if found.why_not else {"stepwise": found.values["eval"]["difference"]["mean"]}
    return replace(found, board=apart)


@question("health", of="card", stage="trained")
def health(examined: Examined) -> Finding:
    """What do the other questions of `normlab inspect` say of the trained model?"""
    names = ("gradients", "leak", "batch_mean", "outlier")
    found = of_the_trained(examined, *names)
    if not found:
        return _DIVERGED
    asked = {each.name: each.text for each in questions("model", names)}
    rows = [(f"{name}: {asked[name]}", each.answer) for name, each in found.items()]
    values = {name: each.values for name, each in found.items()}
    return Finding(found["leak"].answer, values, Table(("question", "answer"), rows))
