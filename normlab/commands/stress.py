"""`normlab stress`: which learning rates does a model train at, by its norm?"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from normlab.commands._help import HelpFormatter
from normlab.commands._paths import as_path
from normlab.commands._terminal import print_table
from normlab.commands.bench._shared import write_json

if TYPE_CHECKING:
    from normlab.records.record import RunRecord

HELP = "the largest learning rate that trains, of any model, by a rate that rises"

_EXAMPLES = """examples:
  normlab stress task=digits model=resnet8 --norms bn,ln,none
  normlab stress task=cifar10 model=vit data_dir=FOLDER \\
    --norms ln,bn,bn+norm@ffn_inner_norm=bn
  normlab stress task=toy placement=post --norms ln,none --seeds 1,2,3
  normlab stress task=digits model=lstm optim=rmsprop clip_norm=1 \\
    --norms bn_position,ln,none

One run a norm and seed, its rate doubled every --steps updates from --from to --to, or until it
diverges. A rate trains if the training loss of the updates up to it is below that of the
frequencies of classes or words, which a model that learned only its biases has. A rate that is
reached by rising may be above one that a run can begin with: compare norms by it, and choose rates
with normlab tune. The runs are kept in runs_dir as others are, and normlab plot RUN shows one.
"""
_SET_HERE = ("norm", "seed", "schedule", "optim.lr", "budget", "validate", "observe.log_every")
_A_DOUBLING = 4  # losses that are looked at


@dataclass(frozen=True)
class Found:
    """What a run showed: `open` where the largest rate that trains is the largest of all."""

    norm: str
    seed: int
    largest: float | None
    open: bool
    best: float
    loss: float
    floor: float
    ended: str


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab stress",
        description=HELP[0].upper() + HELP[1:] + ".",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument("overrides", nargs="*", metavar="key=value", help="as of `normlab train`")
    result.add_argument(
        "--norms",
        default="ln,bn,none",
        help="default: ln,bn,none; + adds settings of one, as bn+norm@ffn_inner_norm=bn",
    )
    result.add_argument("--seeds", default="1", help="default: 1")
    result.add_argument("--from", dest="first", type=float, default=1e-4, help="default: 1e-4")
    result.add_argument("--to", type=float, default=10.0, help="default: 10")
    result.add_argument("--steps", type=int, default=20, help="that double it; default: 20")
    result.add_argument("--json", type=as_path, metavar="FILE", help="write all figures to a file")
    return result


def main(argv: list[str]) -> int:
    """Make the runs, tell what each showed, and print a table; ValueError for keys set here."""
    arguments = parser().parse_intermixed_args(argv)
    if not 0 < arguments.first < arguments.to < math.inf or arguments.steps < _A_DOUBLING:
        raise ValueError(
            f"--from {arguments.first:g} --to {arguments.to:g} --steps {arguments.steps}: rates "
            f"are above 0 and rise, over at least {_A_DOUBLING} steps a doubling"
        )
    seeds = [int(seed) for seed in arguments.seeds.split(",") if seed.strip().isdecimal()]
    if not seeds or len(seeds) != len(arguments.seeds.split(",")):
        raise ValueError(f"--seeds {arguments.seeds}: give whole numbers, as 1,2,3")
    for override in arguments.overrides:
        key = override.lstrip("+").partition("=")[0]
        if any(key == taken or key.startswith(f"{taken}.") for taken in _SET_HERE):
            raise ValueError(f"{override}: the test sets {key} itself; see normlab stress --help")
    from normlab.config import compose

    names = arguments.norms.split(",")
    configs = [
        (name, seed, compose(_overrides(arguments, name, seed))) for name in names for seed in seeds
    ]
    from normlab.run import train

    found: list[Found] = []
    for name, seed, config in configs:
        record = train(config)
        if record.outcome.status == "interrupted":
            raise KeyboardInterrupt
        found.append(_read(name, seed, record, config))
        print(f"{name} seed={seed}: {found[-1].ended}", flush=True)
    _show(found, arguments)
    figures = {"format": "normlab.stress/1", "overrides": arguments.overrides}
    write_json({**figures, "runs": [asdict(each) for each in found]}, arguments.json)
    return 0


def _overrides(arguments: argparse.Namespace, name: str, seed: int) -> list[str]:
    norm, *more = name.split("+")
    total = math.ceil(math.log2(arguments.to / arguments.first) * arguments.steps) + 1
    return [
        *(f"norm={norm}", *more, "probe=[]", "sink=[jsonl]", *arguments.overrides),
        *("schedule=rising", f"schedule.doubling={arguments.steps}", f"seed={seed}"),
        *(f"optim.lr={arguments.first}", f"budget.steps={total}", f"validate.every={total}"),
        *("validate.best=false", f"observe.log_every={arguments.steps // _A_DOUBLING}"),
    ]


def _read(name: str, seed: int, record: "RunRecord", config: Any) -> Found:
    """Read the losses and rates of a run."""
    from normlab.config import to_dict
    from normlab.records.rows import read_rows, series
    from normlab.records.store import RunStore

    folder = RunStore(config.runs_dir).run_dir(to_dict(config))
    rows = read_rows(folder / "metrics.jsonl")
    rates = dict(series(rows, "train/lr"))
    losses = {rates[step]: loss for step, loss in series(rows, "train/loss") if math.isfinite(loss)}
    if not losses:
        raise ValueError(
            f"{folder}: the run ended at step {record.outcome.step} before its first loss was "
            "logged; give a smaller --from"
        )
    floor = record.floors.get("loss", next(iter(losses.values())))
    trains = [rate for rate, loss in losses.items() if loss < floor]
    largest = max(trains, default=None)
    best = min(losses, key=losses.__getitem__)
    ended = f"{record.outcome.status} at step {record.outcome.step}"
    whole = record.outcome.status == "finished" and largest == max(losses)
    return Found(name, seed, largest, whole, best, losses[best], floor, ended)


def _show(found: Sequence[Found], arguments: argparse.Namespace) -> None:
    columns = ["norm", "seed", "largest that trains", "lowest loss at", "loss", "ended"]
    rows = [
        [
            each.norm,
            str(each.seed),
            "none" if each.largest is None else f"{each.largest:.3g}{'+' if each.open else ''}",
            f"{each.best:.3g}",
            f"{each.loss:.3f}",
            each.ended,
        ]
        for each in found
    ]
    notes = [
        f"the rate doubles every {arguments.steps} updates from {arguments.first:g}; it trains "
        f"where the training loss is below {found[0].floor:.3f}, that of frequencies alone",
        "+ the largest that was tried",
    ]
    print_table(columns, rows, notes=notes, numeric=columns[1:5])
