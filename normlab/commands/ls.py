"""`normlab ls`: what there is to choose from, and which runs there are."""

import argparse
import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from normlab import registry
from normlab.commands._help import HelpFormatter
from normlab.commands._paths import as_path
from normlab.commands._terminal import complain, print_table
from normlab.records.canonical import plain
from normlab.records.record import RunRecord
from normlab.records.store import RunStore, norm_label, without_collection

HELP = "list norms, placements, tasks, ... and the runs on disk"

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

_EXAMPLES = """examples:
  normlab ls                  every group and its options
  normlab ls norm             the norms by family, with their papers
  normlab ls norm --json      the same for programs
  normlab ls study            the studies, and what they cost at each scale
  normlab ls keys             every key of a run: its default, what it may be, what it is
  normlab ls runs             the runs below runs/

Tables keep to the terminal's width, in a pipe to 80 columns or what COLUMNS says:
  COLUMNS=300 normlab ls keys | grep warmup
"""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab ls",
        description="List " + HELP.removeprefix("list ") + ".",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument("kind", nargs="?", help="a config group such as norm, `keys` or `runs`")
    result.add_argument("--json", action="store_true", help="print JSON")
    result.add_argument("--runs-dir", type=as_path, default=Path("runs"), help="default: runs")
    return result


def main(argv: list[str]) -> int:
    """List options or runs; raises `ValueError` for a kind that does not exist."""
    arguments = parser().parse_args(argv)
    if arguments.kind == "runs":
        return _list_runs(arguments.runs_dir, as_json=arguments.json)
    if arguments.kind == "keys":
        _list_keys(as_json=arguments.json)
    elif arguments.kind is None:
        _list_groups(as_json=arguments.json)
    elif arguments.kind in registry.groups():
        _list_options(arguments.kind, as_json=arguments.json)
    else:
        raise ValueError(
            f"there is no kind {arguments.kind!r}; "
            f"allowed: {', '.join([*registry.groups(), 'keys', 'runs'])}"
        )
    return 0


def _list_groups(*, as_json: bool) -> None:
    groups = {name: registry.option_names(name) for name in registry.groups()}
    if as_json:
        _print_json(groups)
        return
    rows = [[name, " ".join(names)] for name, names in groups.items()]
    note = "`normlab ls GROUP` says what each is; `normlab ls runs` lists the runs."
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
        "hours: one run after the other, on a core with AVX512 or, at scale=gpu, on a GPU; typed "
        "in: normlab study plan STUDY measures them here"
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
            members.sort(key=lambda option: (_year(option), option.name))
            rows = [[option.name, option.description] for option in members]
            print_table([family, "what it is, paper and year"], rows)
            print()
    print("`normlab explain NORM` shows one; `normlab card norm=NORM` examines it.")


def _family(option: registry.Option) -> str:
    """Return where the statistics of a norm come from, as its file says after `Pools over`."""
    found = _POOLS.search(option.details)
    axes = found[1] if found else ""
    return next(name for name, axis in _FAMILIES.items() if axis in axes)


def _year(option: registry.Option) -> str:
    found = _PAPER.search(option.description)
    return found[1] if found else ""


def _list_keys(*, as_json: bool) -> None:
    from normlab.commands._keys import keys

    listed = keys()
    if as_json:
        _print_json([dataclasses.asdict(key) for key in listed])
        return
    rows = [[key.name, key.default, key.allowed, key.description] for key in listed]
    note = "keys of an option have the defaults of the option: normlab train norm=bn --cfg job"
    print_table(["key", "default", "allowed", "what it is"], rows, notes=[note])


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
    if as_json:
        ended = [
            {
                "path": str(path),
                "run_id": record.run_id,
                "task": record.choice("task"),
                "norm": norm_label(record.config.get("choices", {})),
                "placement": record.choice("placement"),
                "seed": record.seed,
                "status": record.outcome.status,
                "step": record.outcome.step,
                "scores": {name: score.value for name, score in record.scores.items()},
            }
            for path, record in records
        ]
        unread = [{"path": str(path.parent), "status": "damaged"} for path, _ in store.damaged]
        unended = [{"path": str(path), "status": "no record"} for path in store.open]
        _print_json(plain([*ended, *unread, *unended]))
    else:
        rows = [
            [str(path), record.outcome.status, str(record.outcome.step), _best_known(record)]
            for path, record in records
        ]
        rows += [[str(path.parent), "damaged", "", ""] for path, _ in store.damaged]
        rows += [[str(path), "no record yet", "", ""] for path in store.open]
        note = [] if rows else [f"no runs below {runs_dir}; `normlab train` makes one"]
        print_table(["run", "outcome", "step", "score"], rows, notes=note, numeric=["step"])
    for _, message in store.damaged:
        complain(message)
    return 1 if store.damaged else 0


def _best_known(record: RunRecord) -> str:
    """Return a score of the whole test, else of validation."""
    scores = record.main_scores
    name = next((name for name in scores if name.startswith("test/")), next(iter(scores), None))
    return "-" if name is None else f"{name} {scores[name].value:.2f}"


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=1, sort_keys=True))
