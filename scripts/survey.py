"""Which models of transformers move when a batch is padded: `python scripts/survey.py [NAMES]`.

Builds the base model of every type in transformers that takes a mask over tokens or frames, from a
small config with random weights, gives it four rows of unequal length with the mask, and asks
`normlab.inspect`. Writes results/survey/table.md and results/survey/findings.json; the rows of
classes that were not named are kept. A class is left out, with the reason, if no small config
builds within 10 seconds, no input fits, or its questions take longer than two minutes.
"""

import inspect
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

import normlab
from normlab.any_model.finding import questions
from normlab.any_model.tiny import AUDIO, MASKS, made, one_line
from normlab.errors import UserError
from normlab.records.files import atomic_write

FOLDER = Path(
    os.environ.get("SURVEY") or Path(__file__).resolve().parents[1] / "results" / "survey"
)
BUILD_SECONDS, SECONDS, BYTES = 10, 120, 6 * 2**30
SPEECH_HEADS = ("SeamlessM4TForSpeechToText", "SeamlessM4Tv2ForSpeechToText")


def classes() -> list[str]:
    """Return the base models that take a mask over tokens or frames, those of audio first."""
    found = {}
    for named in (*MODEL_MAPPING_NAMES.values(), SPEECH_HEADS):
        for name in [named] if isinstance(named, str) else named:
            try:
                cls = getattr(transformers, name)
                names = inspect.signature(cls.forward).parameters
            except (AttributeError, ImportError):
                continue
            takes = {"input_ids", *AUDIO} & set(names)
            if takes and set(MASKS) & set(names) and cls.main_input_name != "pixel_values":
                found[name] = not takes & set(AUDIO)
    return sorted(found, key=lambda name: (found[name], name))


def ask(name: str) -> dict[str, Any]:
    """Return the row of a class: what its model was given, and what was found."""
    signal.setitimer(signal.ITIMER_PROF, BUILD_SECONDS)
    model, batch = made(name)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    started = time.perf_counter()
    mask = next(key for key in batch if key in MASKS)
    length = batch[mask].shape[1]
    report = normlab.inspect(model, [batch], mask=mask, max_positions=length, checks=[*TITLES])
    seconds = time.perf_counter() - started
    return {
        "inputs": {key: list(x.shape) for key, x in batch.items()},
        "seconds": round(seconds, 1),
        "findings": {each.name: entry(each) for each in report.by_harm() if each.name in TITLES},
    }


def entry(found: Any) -> dict[str, Any]:
    """Return a finding's verdict, and more if it is not fine."""
    if found.verdict == "fine":
        return {"verdict": "fine"}
    value = None if found.value is None else float(f"{found.value:.3g}")
    if found.why_not:
        return {"verdict": found.verdict, "sentence": found.why_not}
    more = {"value": value, "module": found.module, "sentence": str(found)}
    return {"verdict": found.verdict} | {k: v for k, v in more.items() if v is not None}


def _late(*_: Any) -> None:
    raise TimeoutError("took too long")


def work(name: str, to: Connection) -> None:
    """Send a class's row, or why there is none, from a process of its own."""
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    signal.signal(signal.SIGPROF, _late)
    warnings.simplefilter("ignore")
    try:
        to.send(ask(name))
    except BaseException as error:
        plain = type(error) in (ValueError, UserError)
        to.send({"left_out": str(error) if plain else one_line(error)})


def said(row: Mapping[str, Any]) -> str:
    """Return a class's row in one line."""
    if "left_out" in row:
        return f"left out: {row['left_out']}"
    found = row["findings"].items()
    return "; ".join(f"{k}: {f['verdict']} {f.get('value', '')}" for k, f in found)


HEAD = """# Where padding changes the output of transformers {transformers} models

{asked} base models of transformers {transformers} that take a mask over tokens or frames, each from
a small config with **random weights**, with four rows of unequal length **and their mask**. Made by
`python scripts/survey.py` with `normlab.inspect` ([how to read it](../../docs/howto/any_model.md)).
A class with a head, such as BertForMaskedLM, contains its base model and is not listed. Random
weights show where an output can change, not by how much it changes in a trained model. Some
classes accept a mask but ignore it by design (Whisper). Both `look` and `broken` are listed.
`findings.json` has the reason for each of the {left_out} classes that were left out.
"""


TITLES = {
    "padding": "In evaluation, padding moves the output at real tokens",
    "batch_mates": "In evaluation, other rows move the output",
    "modes": "In training, padding enters the statistics of a norm",
}


def words(found: Mapping[str, Any]) -> str:
    """Return the module and what it is, as a finding's sentence has it."""
    module, sentence = found.get("module", ""), found["sentence"]
    if not module:
        return "the model's own forward" if "the model itself" in sentence else "no single module"
    said = sentence.partition(f"{module}: ")[2].partition(". One row")[0].partition("; training")[0]
    return f"`{module}`: {said}"


def counts(rows: Mapping[str, Any]) -> dict[str, int]:
    """Return how many classes were asked, left out, and move, by question."""
    asked = [row["findings"] for row in rows.values() if "findings" in row]
    moved = {
        name: sum(each.get(name, {}).get("verdict") in ("look", "broken") for each in asked)
        for name in TITLES
    }
    return {"asked": len(asked), "left_out": len(rows) - len(asked)} | moved


def one_class_per_line(content: Mapping[str, Any]) -> str:
    """Return the survey as JSON."""
    lines = [f" {json.dumps(k)}: {json.dumps(row)}" for k, row in content["classes"].items()]
    head = json.dumps({**content, "classes": {}}).removesuffix("{}}")
    return head + "{\n" + ",\n".join(lines) + "\n}}\n"


def table(content: Mapping[str, Any]) -> str:
    """Return the survey as a page."""
    rows = {k: row["findings"] for k, row in content["classes"].items() if "findings" in row}
    lines = HEAD.format(**content["counts"], **content).splitlines()
    moved = set()
    for name, title in TITLES.items():
        found = {k: each[name] for k, each in rows.items() if name in each}
        found = {k: f for k, f in found.items() if f["verdict"] in ("look", "broken")}
        moved |= found.keys()
        lines += ["", f"## {title}: {len(found)}", ""]
        lines += ["| class | moved by | module |", "| --- | --- | --- |"] if found else ["None."]
        by_value = sorted(found.items(), key=lambda item: -item[1].get("value", 0))
        for k, f in by_value:
            size = f"{f['value']:.2%}" if "value" in f else ""
            lines.append(f"| {k} | {size} | {words(f)} |")
    quiet = [k for k in rows if k not in moved]
    unclear = [k for k in quiet if rows[k]["padding"]["verdict"] == "does not apply"]
    quiet = [k for k in quiet if k not in unclear]
    lines += ["", f"## No effect found: {len(quiet)}", "", f"{', '.join(quiet)}."]
    if unclear:
        lines += ["", f"## Padding could not be tested: {len(unclear)}", ""]
        lines += [f"{', '.join(unclear)}."]
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> None:
    """Ask about the named classes, or all, and write the results."""
    path = FOLDER / "findings.json"
    rows = json.loads(path.read_text("utf-8"))["classes"] if path.exists() else {}
    questions()  # imports, once for all processes
    process = multiprocessing.get_context("fork")
    for name in names or classes():
        receive, send = process.Pipe(duplex=False)
        worker = process.Process(target=work, args=(name, send))
        worker.start()
        send.close()
        try:
            rows[name] = receive.recv()
        except EOFError:
            rows[name] = {"left_out": "its process ended"}
        worker.join()
        print(name, said(rows[name]), flush=True)
        FOLDER.mkdir(exist_ok=True)
        content = {"transformers": transformers.__version__, "torch": torch.__version__}
        content["counts"] = counts(rows)
        content["classes"] = dict(sorted(rows.items()))
        with atomic_write(path) as file:
            file.write(one_class_per_line(content))
        with atomic_write(FOLDER / "table.md") as file:
            file.write(table(content))


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    main(sys.argv[1:])
