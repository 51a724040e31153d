"""What normlab finds in the models of a library: `python scripts/survey.py LIBRARY [NAMES]`.

Each library has a module in `scripts/surveyed/`. Each model is small, has random weights, and is
asked the quick questions of `normlab.inspect` in a separate process; then the norms that
`normlab.fold_norms` can fold are counted. Writes results/survey/LIBRARY.json and LIBRARY.md.
Without names, it continues with the models that this commit of normlab has not examined yet. A
model is left out, with the reason, if it cannot be built within 20 seconds of CPU time, if no input
fits, or if its questions take more than a minute. `python scripts/survey.py folds LIBRARY [NAMES]`
asks no questions and only counts the norms that fold, in models that have a row.
"""

import importlib
import json
import multiprocessing
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from surveyed import Subject
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import normlab
from normlab.any_model.loading.tiny import message_with_type
from normlab.any_model.questions.registry import questions
from normlab.errors import UserError
from normlab.findings.finding import Finding
from normlab.records.files import atomic_write

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("SURVEY") or ROOT / "results" / "survey")
BUILD_SECONDS, SECONDS, BYTES = 20, 60, 6 * 2**30
VERDICTS = ("failed", "broken", "look", "fine", "does not apply")


class Passes:
    """Counts the calls of a model without a hook."""

    def __init__(self, model: nn.Module):
        self.count, call = 0, nn.Module.__call__

        def counted(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            self.count += module is model
            return call(module, *args, **kwargs)

        nn.Module.__call__ = counted


def settle(subject: Subject) -> None:
    """Set batch norms' running statistics to those of the batch, as in a trained model."""
    norms = [m for m in subject.model.modules() if isinstance(m, _BatchNorm)]
    for each in norms:
        each.momentum = None
        each.train()
    if norms:
        plain_pass(subject)
    subject.model.eval()


def plain_pass(subject: Subject) -> float:
    """Run the model on its first batch and return the CPU seconds."""
    batch, forward = subject.batches[0], subject.arguments.get("forward")
    started = time.process_time()
    with torch.no_grad():
        if forward:
            forward(subject.model, batch)
        elif isinstance(batch, Mapping):
            subject.model(**batch)
        else:
            subject.model(*(batch if isinstance(batch, tuple) else (batch,)))
    return time.process_time() - started


def cost_of_a_pass(subject: Subject) -> float:
    """Return the CPU seconds per pass, averaged over enough passes for the clock's resolution."""
    seconds = [plain_pass(subject)]
    while sum(seconds[1:]) < 0.1 and len(seconds) < 1000:  # the first call imports
        seconds.append(plain_pass(subject))
    return statistics.mean(seconds[1:]) or 1e-5


def shapes(batch: Any) -> Any:
    """Return the shapes of a batch's tensors."""
    if isinstance(batch, Mapping):
        return {key: shapes(x) for key, x in batch.items() if torch.is_tensor(x)}
    if isinstance(batch, tuple):
        return [shapes(x) for x in batch if torch.is_tensor(x)]
    return list(getattr(batch, "shape", ()))


def ask(library: Any, name: str) -> dict[str, Any]:
    """Return a model's row: its inputs, the findings, and the cost in plain passes."""
    signal.setitimer(signal.ITIMER_PROF, BUILD_SECONDS)
    subject = library.subject(name)
    settle(subject)
    plain = cost_of_a_pass(subject)
    passes = Passes(subject.model)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    started = time.process_time()
    report = normlab.inspect(subject.model, subject.batches, **subject.arguments)
    cost = (time.process_time() - started) / plain
    signal.setitimer(signal.ITIMER_PROF, 0)
    return {
        "inputs": shapes(subject.batches[0]),
        "passes": passes.count,
        "cost": round(cost),
        "findings": {each.name: entry(each) for each in report.by_harm()},
        "folds": folds(subject) | {"commit": this_commit()},
    }


def folds(subject: Subject) -> dict[str, Any]:
    """Return how many layer and RMS norms a model has, and how many means and gains fold."""
    forward = subject.arguments.get("forward")
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        table = normlab.fold_norms(subject.model, subject.batches, forward=forward).table
    except Exception as error:
        return {
            "why_not": str(error)[:300] if type(error) is UserError else message_with_type(error)
        }
    stay = Counter(
        words(each.why_not)
        for row in table
        for each in (row.mean, row.gain)
        if each and each.why_not
    )
    found: dict[str, Any] = {"norms": len(table)}
    for part in ("mean", "gain"):
        values = [value for row in table if (value := getattr(row, part)) is not None]
        found |= {f"{part}s": len(values), f"{part}s_folded": sum(value.folded for value in values)}
    return found | ({"stay": dict(stay.most_common(3))} if stay else {})


def ask_folds(library: Any, name: str) -> dict[str, Any]:
    """Return how many norms of a model fold, without asking any question."""
    signal.setitimer(signal.ITIMER_PROF, BUILD_SECONDS)
    subject = library.subject(name)
    settle(subject)
    return folds(subject)


def words(why: str) -> str:
    """Return a reason with a placeholder for module names, so that equal reasons can be counted."""
    return re.sub(r"\S*[._]\S*|\d+", "*", why)


def entry(found: Finding) -> dict[str, Any]:
    """Return a finding's verdict, with details if it is not `fine`."""
    if found.verdict in ("fine", "does not apply"):
        return {"verdict": found.verdict} | ({"sentence": found.why_not} if found.why_not else {})
    value = None if found.value is None else float(f"{found.value:.3g}")
    more = {"value": value, "module": found.module, "sentence": str(found)[:500]}
    return {"verdict": found.verdict} | {k: v for k, v in more.items() if v is not None}


def _late(*_: Any) -> None:
    raise TimeoutError("took too long")


def work(ask: Any, library: Any, name: str, to: Connection) -> None:
    """Send a model's row, or why there is none, from a separate process."""
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    signal.signal(signal.SIGPROF, _late)
    warnings.simplefilter("ignore")
    try:
        to.send(ask(library, name))
    except BaseException as error:
        text = str(error) if type(error) is UserError else message_with_type(error)
        to.send({"left_out": text[:300]})


def in_line(row: Mapping[str, Any]) -> str:
    """Return a model's row in one line."""
    if "left_out" in row:
        return f"left out: {row['left_out']}"
    found = {k: f for k, f in row["findings"].items() if f["verdict"] in VERDICTS[:3]}
    words = [f"{k}: {f['verdict']} {f.get('value', '')} {f['sentence']}" for k, f in found.items()]
    return f"{row['passes']} passes, cost {row['cost']}; " + "; ".join(words)


def counts(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many models were examined and left out, verdicts by question, the median cost.

    A row without a measured cost is ignored in the median.
    """
    asked = [row for row in rows.values() if "findings" in row]
    names = [each.name for each in questions()]
    verdicts = {
        name: Counter(row["findings"][name]["verdict"] for row in asked if name in row["findings"])
        for name in names
    }
    late = sum("took too long" in row.get("left_out", "") for row in rows.values())
    head = {"asked": len(asked), "left_out": len(rows) - len(asked), "too_slow": late}
    timed = [row for row in asked if "cost" in row]
    cost = {k: statistics.median([row[k] for row in timed] or [0]) for k in ("passes", "cost")}
    moved = {name: v["broken"] + v["look"] for name, v in verdicts.items()}
    failed = sum(any(f["verdict"] == "failed" for f in row["findings"].values()) for row in asked)
    return head | cost | moved | {"failed": failed, "verdicts": verdicts, "folds": folded(asked)}


def folded(asked: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the totals of norms, of means and gains that fold, and of models that have any."""
    rows = [row["folds"] for row in asked if "norms" in row.get("folds", {})]
    keys = ("norms", "means", "means_folded", "gains", "gains_folded")
    return {"models": len(rows)} | {key: sum(row[key] for row in rows) for key in keys}


def one_model_per_line(content: Mapping[str, Any]) -> str:
    """Return the survey as JSON."""
    lines = [f" {json.dumps(k)}: {json.dumps(row)}" for k, row in content["classes"].items()]
    head = json.dumps({**content, "classes": {}}).removesuffix("{}}")
    return head + "{\n" + ",\n".join(lines) + "\n}}\n"


HEAD = """# What normlab finds in {library} {version}

{asked} {kind}. Each has a small config and
**random weights**, so this page shows where an output can change, not how much it changes in a
trained model. The running statistics of batch norms were set to the statistics of the batch. Made
by `python scripts/survey.py {library}` with `normlab.inspect` and torch {torch}
([how to read it](../../docs/howto/any_model.md)), at the commits {commits} (+ means with
uncommitted changes). `{library}.json` has the commit of each model, and the reason for each of the
{left_out} that were left out."""

COST = """The questions take {passes:.0f} passes of a model (median). With everything else that they
need, they take as much CPU time as {cost:.0f} plain passes of such a small model."""


FOLDS = """Of the {norms} layer and RMS norms over the last axis in {models} models,
{means} are layer norms, of which {means_folded} become RMS norms without changing the output
(`normlab.fold_norms`, float64, within 1e-9), and {gains} have a gain or bias, of which
{gains_folded} are folded into the weights of the layers that read them."""


def where(found: Mapping[str, Any]) -> str:
    """Return the module that a finding names, and what the finding says about it."""
    module, sentence = found.get("module"), found["sentence"].replace("|", "\\|")
    if not module:
        return sentence.partition(". One row")[0]
    words = sentence.partition(f"{module}: ")[2] or sentence
    return f"`{module}`: {words.partition('. One row')[0].partition('; training')[0]}"


def sections(rows: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the page: one section per question that found something."""
    for each in questions():
        found = {k: row["findings"].get(each.name) for k, row in rows.items()}
        found = {k: f for k, f in found.items() if f and f["verdict"] in VERDICTS[:3]}
        if not found:
            continue
        yield from ("", f"## {each.name}: {len(found)}", "", each.text, "")
        yield from ("| model | verdict | changes by | module |", "| --- | --- | --- | --- |")
        order = sorted(found, key=lambda k: (found[k]["verdict"], -found[k].get("value", 0)))
        for k in order:
            f = found[k]
            size = f"{f['value']:.2%}" if "value" in f and each.name in MOVES else ""
            yield f"| {k} | {f['verdict']} | {size} | {where(f)} |"


MOVES = ("padding", "batch_mates", "future", "modes")


def page(content: Mapping[str, Any]) -> str:
    """Return the survey as a page."""
    rows = {k: row for k, row in content["classes"].items() if "findings" in row}
    number = content["counts"]
    lines = HEAD.format(**content | number).splitlines()
    lines += COST.format(**number).splitlines() if number["cost"] else []
    lines += ["", f"| question | {' | '.join(VERDICTS)} |", "| --- |" + " ---: |" * len(VERDICTS)]
    for name, by_verdict in number["verdicts"].items():
        cells = " | ".join(str(by_verdict.get(verdict, 0)) for verdict in VERDICTS)
        lines.append(f"| {name} | {cells} |")
    if number["folds"]["models"]:
        lines += ["", "## Norms that fold", "", *FOLDS.format(**number["folds"]).splitlines()]
    lines += sections(rows)
    if content["checked"]:
        lines += ["", "## Checked by hand", "", content["checked"]]
    loud = {
        k
        for k, r in rows.items()
        if any(f["verdict"] in VERDICTS[:3] for f in r["findings"].values())
    }
    quiet = [k for k in rows if k not in loud]
    lines += ["", f"## Nothing found: {len(quiet)}", "", f"{', '.join(quiet)}."]
    return "\n".join(lines) + "\n"


def write(library: Any, name: str, rows: Mapping[str, Any]) -> None:
    """Write the survey of a library."""
    FOLDER.mkdir(exist_ok=True)
    content = {"library": name, "version": version(name.replace("_", "-")), "kind": library.KIND}
    content["torch"] = torch.__version__.partition("+")[0]
    content["checked"] = library.CHECKED
    content["commits"] = ", ".join(sorted({row["commit"] for row in rows.values()}))
    content |= {"counts": counts(rows), "classes": dict(sorted(rows.items()))}
    with atomic_write(FOLDER / f"{name}.json") as file:
        file.write(one_model_per_line(content))
    with atomic_write(FOLDER / f"{name}.md") as file:
        file.write(page(content))


def row_of(library: Any, name: str, function: Any) -> dict[str, Any]:
    """Return what `function(library, name, pipe)` sends from a separate process."""
    process = multiprocessing.get_context("fork")
    receive, send = process.Pipe(duplex=False)
    worker = process.Process(target=function, args=(library, name, send))
    worker.start()
    send.close()
    try:
        return receive.recv()
    except EOFError:
        return {"left_out": "its process ended"}
    finally:
        worker.join()


def read(name: str) -> dict[str, Any]:
    """Return the rows of a library's survey; empty if there is no file."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text("utf-8"))["classes"] if path.exists() else {}


def this_commit() -> str:
    """Return the commit of this checkout, in eight characters."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def count_folds(name: str, *names: str) -> None:
    """Count the norms that fold in the named models, or in all not counted by this commit."""
    library, rows, commit = importlib.import_module(f"surveyed.{name}"), read(name), this_commit()
    asked = [key for key, row in rows.items() if "findings" in row]
    rest = [key for key in asked if rows[key].get("folds", {}).get("commit") != commit]
    for each in names or rest:
        found = row_of(library, each, partial(work, ask_folds))
        if "left_out" in found:
            found = {"why_not": found["left_out"]}
        rows[each]["folds"] = found | {"commit": commit}
        print(each, rows[each]["folds"], flush=True)
        write(library, name, rows)


def main(name: str, *names: str) -> None:
    """Examine the named models of a library, or all new to this commit, and write the files."""
    if name == "folds":
        count_folds(*names)
        return
    library, rows, commit = importlib.import_module(f"surveyed.{name}"), read(name), this_commit()
    questions()  # imported once for all processes
    every = library.classes()
    rows = {key: row for key, row in rows.items() if key in every}
    rest = [key for key in every if rows.get(key, {}).get("commit") != commit]
    for each in names or sorted(rest, key=lambda key: key in rows):  # models without a row first
        rows[each] = row_of(library, each, partial(work, ask)) | {"commit": commit}
        print(each, in_line(rows[each]), flush=True)
        write(library, name, rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
