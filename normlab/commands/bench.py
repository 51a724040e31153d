"""`normlab bench`: measure the speed of training on this machine."""

import argparse
import json
from pathlib import Path
from typing import Any

from normlab.commands._terminal import print_table

HELP = "measure training speed, where its time goes, and what probes cost"

_EXAMPLES = """examples:
  normlab bench train                                       the small model on synthetic text
  normlab bench train model=iwslt placement=post            fairseq's transformer_iwslt_de_en
  normlab bench train --norms ln,bn,rms                     norms in turns, and their ratios
  normlab bench train precision=fp32 --profile --json b.json
  normlab bench train task=mlm --peer                       BERT, and Hugging Face's beside it
  normlab bench probes norm=bn                              no probe, the default set, every probe
"""
_BASE = ["model=small", "max_tokens=2048", "model.dropout=0.3", "task=translation", "data_dir=-"]
_BASE_OF_TEXT = ["model=bert_mini", "batch_size=32", "task.short_share=0"]


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab bench",
        description=HELP.capitalize() + ".",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("what", choices=["train", "probes"], help="what is measured")
    result.add_argument("overrides", nargs="*", metavar="key=value", help="as of `normlab train`")
    result.add_argument("--norms", help="norms to compare in one process, as ln,bn,rms")
    result.add_argument(
        "--peer", action="store_true", help="add Hugging Face's BERT on the same batches"
    )
    result.add_argument("--threads", type=int, default=1, help="default: 1")
    result.add_argument("--intervals", type=int, default=5, help="measurements; default: 5")
    result.add_argument(
        "--steps", type=int, help="steps in each; default: 10, of probes 50, which all look in"
    )
    result.add_argument("--warmup", type=int, default=5, help="steps before; default: 5")
    result.add_argument("--profile", action="store_true", help="add a table of where time goes")
    result.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file")
    return result


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON where asked."""
    arguments = parser().parse_intermixed_args(argv)
    if arguments.steps is None:
        arguments.steps = 50 if arguments.what == "probes" else 10
    for name in ("threads", "intervals", "steps", "warmup"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name}={getattr(arguments, name)} must be at least 1")
    from normlab.bench import train
    from normlab.bench.profile import profile_steps
    from normlab.train.runtime import Runtime

    own = variants(arguments.what, arguments.norms)
    configs = {name: bench_config([*arguments.overrides, *o]) for name, o in own.items()}
    first = next(iter(configs.values()))
    runtime = Runtime.start(
        device=first["device"],
        precision=first["precision"],
        threads=arguments.threads,
    )
    contenders: list[train.Measured] = [
        train.start(name or config["choices"]["norm"], config, runtime)
        for name, config in configs.items()
    ]
    if arguments.peer:
        from normlab.bench import hugging_face
        from normlab.build import build_task

        contenders.append(hugging_face.start(first, build_task(first), runtime))
    report = train.measure(
        contenders,
        runtime,
        intervals=arguments.intervals,
        steps=arguments.steps,
        warmup=arguments.warmup,
    )
    report["overrides"] = arguments.overrides
    if arguments.profile:
        for contender, run in zip(contenders, report["runs"], strict=True):
            run["profile"] = profile_steps(contender.step, arguments.steps)
    show(report)
    if arguments.json:
        from normlab.records.atomic import atomic_write

        with atomic_write(arguments.json) as file:
            file.write(json.dumps(report, indent=1, sort_keys=True) + "\n")
    return 0


def variants(what: str, norms: str | None) -> dict[str, list[str]]:
    """Return the runs that are measured in turns: their names, and the overrides of each.

    A run without a name is called by its norm.
    """
    if what == "probes":
        return {"no probe": ["probe=[]"], "default": [], "full": ["probe=full"]}
    return {name: [f"norm={name}"] for name in norms.split(",")} if norms else {"": []}


def bench_config(overrides: list[str]) -> dict[str, Any]:
    """Return the plain config of a measured run: the small model on the synthetic corpus.

    A task among the overrides replaces that corpus; of `mlm` it is BERT-Mini on full sequences.
    """
    from normlab.config import compose, to_dict

    chosen = next((o.removeprefix("task=") for o in overrides if o.startswith("task=")), None)
    base = _BASE_OF_TEXT if chosen == "mlm" else _BASE
    config = to_dict(compose([*base, *overrides]))
    if chosen is None:
        config["task"]["corpus"] = {"_target_": "normlab.bench.corpus.SyntheticCorpus"}
        config["choices"]["task"] = "synthetic"
    return config


def show(report: dict[str, Any]) -> None:
    """Print a report."""
    rows = []
    for run in report["runs"]:
        rate, busy = run["tokens_per_second"], run["tokens_per_busy_second"]
        rows.append(
            [
                run["name"],
                f"{rate['median']:,.0f}",
                f"{rate['min']:,.0f}-{rate['max']:,.0f}",
                f"{busy['median']:,.0f}",
                f"{run['share_of_peak']:.0%}",
                f"{run['ratio_to_first']:.3f}",
                f"{1 - run['padding_share']:.3f}",
            ]
        )
    columns = ["run", "tokens/s", "range", "tokens/busy s", "of peak", "to first", "fill"]
    print_table(columns, rows, notes=_notes(report), numeric=columns[1:])
    for run in report["runs"]:
        if "profile" in run:
            print()
            _show_profile(run)


def _notes(report: dict[str, Any]) -> list[str]:
    environment, run = report["environment"], report["runs"][0]
    peak = report["peak_gflop_per_second"]
    versions = ", ".join(f"{k} {environment['versions'][k]}" for k in ("python", "torch"))
    first = report["start_to_first_step_seconds"]
    return [
        f"{environment['device']}, {environment['threads']} thread(s), "
        f"{environment['precision']}, {versions}",
        f"median of {run['tokens_per_second']['n']} intervals of {run['steps_per_interval']} "
        f"steps, {run['target_tokens_per_step']:,.0f} target tokens a step; busy seconds leave "
        f"out what other programs took",
        f"peak of the model's products: {peak['median']:,.0f} GFLOP/s "
        f"({peak['min']:,.0f}-{peak['max']:,.0f}); useful: "
        f"{run['useful_mflop_per_token']:.1f} MFLOP a target token",
        f"memory {report['peak_memory_bytes'] / 2**30:.2f} GiB at most; start to first step "
        + ("unknown" if first is None else f"{first:.1f} s"),
    ]


def _show_profile(run: dict[str, Any]) -> None:
    spent = run["profile"]["milliseconds_per_step"]
    total = sum(spent.values())
    rows = [[kind, f"{time:.1f}", f"{time / total:.1%}"] for kind, time in spent.items()]
    print_table(
        [f"{run['name']}: kind", "ms a step", "share"], rows, numeric=["ms a step", "share"]
    )
    print()
    columns = ["operator", "kind", "ms a step", "calls"]
    operators = [
        [item["name"], item["kind"], f"{item['milliseconds']:.2f}", f"{item['calls']:.0f}"]
        for item in run["profile"]["operators"]
    ]
    print_table(columns, operators, numeric=columns[2:])
