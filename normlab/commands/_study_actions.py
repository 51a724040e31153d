"""The actions of `normlab study`: their descriptions, examples and flags."""

import argparse
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from normlab.commands._arguments import add_notes, as_path, command_parser

EXAMPLES = """examples:
  normlab study run translation_norms                    a trial, 20 s per run
  normlab study plan bert_norms scale=small data_dir=FOLDER  what it costs
  normlab study tune batching scale=small data_dir=FOLDER  learning rates
  normlab study publish batching scale=small data_dir=FOLDER  into results/
  normlab study verify                             all published studies

normlab study run --help describes an action; normlab list studies lists studies
and their cost.
"""
_RUN = """examples:
  normlab study run translation_norms rows="[ln,'bn, padding counted']"
  normlab study run translation_norms scale=small placement=pre  a part of it
  normlab study run batching padding scale=small data_dir=FOLDER \\
    batching:placement=pre --budget 8h --publish results

key=value is a setting of `normlab train` for all runs, STUDY:key=value for one
study. rows= is a list of names, or of the numbers in `study plan`. Several
studies run one after the other, seed by seed, and shared runs are executed
once. When the time budget is spent, running runs save and stop, and the same
command resumes. A seed is published once all its runs have finished. A
published run never changes, unless you add --replace.
"""
_PLAN = """examples:
  normlab study plan bert_norms scale=small data_dir=FOLDER
  normlab study plan bert_norms scale=small data_dir=FOLDER --commands

Nothing is trained. Times come from finished runs of the study on the same kind
of device, your own or published; a time from another kind is marked.
"""
_TUNE = """examples:
  normlab study tune batching padding scale=small data_dir=FOLDER
  normlab study tune batching scale=small rows=NAME,NAME  only these rows
  normlab study tune modern_block scale=small model=llama  only this block
  normlab study tune batching --no-write          a trial that writes nothing

A scale's `tuning` in configs/study/STUDY.yaml says what is tried: a key, three
or more values (two for scale=smoke and pilots), seeds, a score and overrides.
It may instead name another scale of this study, or another study, whose tuning
is used. Each value is tried for each row at each point and judged by the
validation score of the last weights, averaged over seeds; a diverged trial is
the worst. The choice is written to `rates` of the scale, and every trial to
results/STUDY/tuning.json. If no value trains a row, its rate is removed. Commit
the choice before the runs that count.
"""
_PUBLISH = """examples:
  normlab study publish batching scale=small data_dir=FOLDER  seeds in runs/
  normlab study publish batching                regenerate its tables and pages
  normlab study publish                         the same for all studies
  normlab study publish --accept results/bench  accept changed evidence

With key=value, as for `normlab study run`, it prints the table and writes
table, page, records and curves to results/STUDY/SCALE, for seeds all of whose
runs have finished.
"""
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def read_time(text: str) -> float:
    """Return the seconds in `90m`, `2.5h` or `45s`. Raise ArgumentTypeError for any other text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    if match is None or match[2] not in _UNITS or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text}: expected a time, such as 90m or 2.5h")
    return float(match[1]) * _UNITS[match[2]]


class Action(NamedTuple):
    """The description of an action, the examples in its help, and its flags."""

    does: str
    examples: str | None
    flags: str


ACTIONS = {
    "run": Action(
        "run studies and print their tables",
        _RUN,
        "--processes --budget --publish --replace --notes",
    ),
    "plan": Action(
        "show what studies cost: runs, updates, data, hours",
        _PLAN,
        "--processes --publish --notes --commands",
    ),
    "tune": Action(
        "choose learning rates with the same trials for every row",
        _TUNE,
        "--processes --budget --no-write --results",
    ),
    "publish": Action(
        "write tables, pages and records to results/",
        _PUBLISH,
        "--replace --notes --accept --results",
    ),
    "verify": Action(
        "check that published tables and pages follow from their records", None, "--results"
    ),
}
_REPLACE = "overwrite published runs that differ, and list them"
_PUBLISHED = "folder of published seeds; `run` adds completed ones, `plan` reads their times"
_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "--processes": dict(type=int, help="runs at a time; default: one per GPU or core"),
    "--budget": dict(
        type=read_time,
        default=math.inf,
        metavar="TIME",
        help="stop after this time, such as 90m or 2.5h",
    ),
    "--publish": dict(type=as_path, metavar="FOLDER", help=_PUBLISHED),
    "--replace": dict(action="store_true", help=_REPLACE),
    "--commands": dict(action="store_true", help="print the command of each remaining run"),
    "--accept": dict(
        action="extend",
        nargs="+",
        type=as_path,
        metavar="PATH",
        help="accept changed evidence in PATH",
    ),
    "--no-write": dict(action="store_true", help="show the choice without writing it"),
    "--results": dict(
        type=as_path, metavar="FOLDER", help="folder of published studies; default: results"
    ),
}


def parser(action: str) -> argparse.ArgumentParser:
    """Return the parser of an action."""
    does, examples, flags = ACTIONS[action]
    result = command_parser(f"study {action}", examples, does)
    add = result.add_argument
    if action == "verify":
        add("words", nargs="*", metavar="STUDY", help="published studies; default: all")
    else:
        text = "studies, scale=SCALE (default: smoke), rows=, seeds=, and settings for all runs"
        several = "*" if action == "publish" else "+"
        add("words", nargs=several, metavar="STUDY | key=value", help=text)
    for flag in flags.split():
        if flag == "--notes":
            add_notes(result)
        else:
            add(flag, **_FLAGS[flag])
    return result
