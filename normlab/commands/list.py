"""`normlab list`: the options of config groups, the keys of a run, the runs on disk."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from normlab.commands._arguments import as_path, command_parser
from normlab.commands._terminal import complain, print_table
from normlab.config import registry
from normlab.config.ranges import RANGES, range_of
from normlab.records.files import read_json
from normlab.records.labels import norm_label
from normlab.records.record import RunRecord, plain
from normlab.records.store import PROGRESS_FILE, RunStore, without_collection

# Where statistics come from, by an axis that `Pools over` names; the last takes all others.
_FAMILIES = {
    "over the batch": "batch",
    "by sequence": "position",
    "by token": "feature",
    "no statistics": "nothing",
    "others": "",
}
_POOLS = re.compile(r"Pools over ([a-z]+(?:(?:, | and )[a-z]+)*)")
_PAPER = re.compile(r"\([^()]*\b((?:19|20)\d\d)\)")

_LINE = re.compile(r"(?P<indent> *)(?P<name>\w+):(?: +(?P<value>[^#]*?))?(?: +# (?P<said>.*))?")

_EXAMPLES = """examples:
  normlab list               every group and its options
  normlab list norms         the norms by family, with their papers
  normlab list norms --json  the same as JSON
  normlab list studies       the studies, and what they cost at each scale
  normlab list keys          each key: its default, allowed values, meaning
  normlab list runs          the runs below runs/, with their progress

Names may be singular or plural. Tables fit the terminal's width, in a pipe 80 columns or COLUMNS:
  COLUMNS=300 normlab list keys | grep warmup
"""


def main(argv: list[str]) -> int:
    """List options or runs; raises `ValueError` for a kind that does not exist."""
    does = "List norms, placements, studies, keys, ... and the runs on disk."
    parser = command_parser("list", does, _EXAMPLES)
    parser.add_argument("kind", nargs="?", help="a config group such as norms, `keys` or `runs`")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--runs-dir", type=as_path, default=Path("runs"), help="default: runs")
    arguments = parser.parse_args(argv)
    kind, groups = arguments.kind, registry.groups()
    names = {form: name for name in (*groups, "key", "run") for form in (name, _plural(name))}
    if kind is None:
        _list_groups(as_json=arguments.json)
    elif kind not in names:
        near = get_close_matches(kind, names, n=1)
        listed = ", ".join([*map(_plural, groups), "keys", "runs"])
        meant = f"did you mean {near[0]}? There are" if near else "there are"
        raise ValueError(f"nothing is called {kind!r:.60}; {meant} {listed}")
    elif names[kind] == "run":
        return _list_runs(arguments.runs_dir, as_json=arguments.json)
    elif names[kind] == "key":
        _list_keys(as_json=arguments.json)
    else:
        _list_options(names[kind], as_json=arguments.json)
    return 0


def _plural(name: str) -> str:
    if re.search("[^aeiou]y$", name):
        return f"{name[:-1]}ies"
    return name if name.endswith("s") else f"{name}s"


def _list_groups(*, as_json: bool) -> None:
    groups = {name: registry.option_names(name) for name in registry.groups()}
    if as_json:
        _print_json(groups)
        return
    rows = [[name, " ".join(names)] for name, names in groups.items()]
    note = "`normlab list GROUP` describes the options; `normlab list runs` lists the runs."
    print_table(["group", "options"], rows, notes=[note])


def _list_options(group: str, *, as_json: bool) -> None:
    options = registry.options(group)
    costs = _costs(options) if group == "study" else {}
    if as_json:
        listed = [{**dataclasses.asdict(o), "path": str(o.path)} for o in options]
        for option in listed if costs else []:
            cost = costs[option["name"]]
            option["cost"] = {scale: {"runs": n, "hours": h} for scale, (n, h) in cost.items()}
        _print_json(listed)
        return
    if group == "norm":
        _print_norms(options)
        return
    rows = [[o.name, o.description] for o in options]
    for row in rows if costs else []:
        of_scales = costs[row[0]].items()
        row.append("; ".join(f"{scale}: {_cost(*cost)}" for scale, cost in of_scales))
    note = (
        "hours: one run after the other, on a core with AVX512 or, at scale=paper, on a GPU, as "
        "the study's file estimates; normlab study plan STUDY measures them here"
    )
    notes = [note] if costs else []
    columns = [group, "what it is", *(["cost by scale"] if costs else [])]
    print_table(columns, rows, notes=notes)


def _print_norms(options: Sequence[registry.Option]) -> None:
    """Print norms by family, those without a paper first, then from the oldest to the newest."""
    families: dict[str, list[registry.Option]] = {name: [] for name in _FAMILIES}
    for option in options:
        families[_family(option)].append(option)
    for family, members in families.items():
        if members:
            members.sort(key=lambda option: (_PAPER.findall(option.description)[:1], option.name))
            rows = [[option.name, option.description] for option in members]
            print_table([family, "what it is, paper and year"], rows)
            print()
    print("`normlab explain NORM` shows one; `normlab norm card NORM` examines it.")


def _family(option: registry.Option) -> str:
    """Return where the statistics of a norm come from, as its file says after `Pools over`."""
    found = _POOLS.search(option.details)
    axes = found[1] if found else ""
    return next(name for name, axis in _FAMILIES.items() if axis in axes)


def _list_keys(*, as_json: bool) -> None:
    listed = keys()
    if as_json:
        _print_json([key._asdict() for key in listed])
        return
    note = "an option sets the defaults of its own keys: normlab train norm=bn --cfg job"
    print_table(["key", "default", "allowed", "what it is"], listed, notes=[note])


def _costs(options: Iterable[registry.Option]) -> dict[str, dict[str, tuple[int, float]]]:
    """Return by study and scale how many runs there are, and how many hours they take."""
    from normlab.studies import load_study

    studies = {option.name: load_study(option.name) for option in options}
    return {
        name: {scale: study.cost(scale) for scale in study.scales}
        for name, study in studies.items()
    }


def _cost(runs: int, hours: float) -> str:
    return f"{runs} runs, " + (f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.0f} min")


@without_collection()
def _list_runs(runs_dir: Path, *, as_json: bool) -> int:
    store = RunStore(runs_dir)
    records = store.entries()
    damaged = [str(path.parent) for path, _ in store.damaged]
    unended = {str(path): _progress(path) for path in store.open}
    if as_json:
        ended = [{"path": str(path), **_facts(record)} for path, record in records]
        unread = [{"path": path, "status": "damaged"} for path in damaged]
        others = [
            {"path": path, "status": "no record", **({"progress": now} if now else {})}
            for path, now in unended.items()
        ]
        _print_json(plain([*ended, *unread, *others]))
    else:
        rows = [
            [str(path), record.outcome.status, f"{record.outcome.step:,}", _best_known(record)]
            for path, record in records
        ]
        rows += [[path, "damaged", "", ""] for path in damaged]
        rows += [[path, *_said(now)] for path, now in unended.items()]
        notes = [] if rows else [f"no runs below {runs_dir}; `normlab train` makes one"]
        if any(unended.values()):
            notes.append("a run without an outcome shows its last progress; resume a killed one")
        print_table(["run", "outcome", "step", "score"], rows, notes=notes, numeric=["step"])
    for _, message in store.damaged:
        complain(message)
    return 1 if store.damaged else 0


def _facts(record: RunRecord) -> dict[str, Any]:
    return {
        "run_id": record.run_id,
        "task": record.choice("task"),
        "norm": norm_label(record.config.get("choices", {})),
        "placement": record.choice("placement"),
        "seed": record.seed,
        "status": record.outcome.status,
        "step": record.outcome.step,
        "scores": {name: score.value for name, score in record.scores.items()},
    }


def _progress(folder: Path) -> Mapping[str, Any]:
    """Return what a run without a record says of itself in `progress.json`; {} for nothing."""
    path = folder / PROGRESS_FILE
    try:
        found = read_json(path) if path.is_file() else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _said(now: Mapping[str, Any]) -> list[str]:
    """Return phase, step and loss of a run that trains, with the time that is left."""
    if not now:
        return ["no record yet", "", ""]
    done, total, loss, left = (now.get(key) for key in ("done", "total", "loss", "left"))
    step = " of ".join(f"{n:,}" for n in (done, total) if isinstance(n, int))
    seen = [f"loss {loss:.4g}"] if isinstance(loss, int | float) else []
    seen += [f"{left / 60:,.0f} min left"] if isinstance(left, int | float) else []
    return [str(now.get("phase", "")), step, ", ".join(seen)]


def _best_known(record: RunRecord) -> str:
    """Return a score of the whole test, else of validation."""
    scores = record.main_scores
    name = next((name for name in scores if name.startswith("test/")), next(iter(scores), None))
    if name is None:
        return "-"
    value = scores[name].value
    return f"{name} {value:.3g}" if abs(value) >= 1e6 else f"{name} {value:.2f}"


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=1, sort_keys=True))


class Key(NamedTuple):
    """A dotted key: its default (empty for a key of options), what it may be, what it is."""

    name: str
    default: str
    allowed: str
    description: str


def keys() -> list[Key]:
    """Return the keys of every run as the config file has them, then those of options."""
    from normlab.config.schema import PARTS, RunConfig, top_level_keys

    lines, own = _lines_of_the_config(), []
    for name in top_level_keys():
        part, _, last = name.rpartition(".")
        hint = get_type_hints(PARTS.get(part, RunConfig))[last]
        default, said = lines[name]
        own.append(Key(name, default, _allowed(name, hint), said))
    named = {key.name for key in own}
    others = sorted(name for name in RANGES if name not in named)
    return own + [Key(name, "", _allowed(name, None), "") for name in others]


def _lines_of_the_config() -> dict[str, tuple[str, str]]:
    """Return the default and the comment of each dotted key of `configs/config.yaml`."""
    found, top = {}, ""
    for line in (registry.CONFIG_DIR / "config.yaml").read_text("utf-8").splitlines():
        if (key := _LINE.fullmatch(line)) is not None:
            top = top if key["indent"] else key["name"]
            name = f"{top}.{key['name']}" if key["indent"] else top
            found[name] = key["value"] or "", key["said"] or ""
    return found


def _allowed(name: str, hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(member.name for member in hint)
    if (found := range_of(name)) is not None:
        return found.allowed
    return "true, false" if hint is bool else ""
