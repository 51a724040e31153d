"""`normlab doctor`: check this machine, and with --speed measure training speed."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from normlab.commands._arguments import command_parser
from normlab.errors import UserError
from normlab.terminal import at_work, print_prose

_EXAMPLES = """examples:
  normlab doctor         one line per check: ok or warn, and what to do
  normlab doctor --speed norm=bn task=multi30k data_dir=FOLDER
"""
_SECONDS = 3.0  # the longest wait for W&B to answer


class Diagnosis(NamedTuple):
    """One finding: ok or warn; `advice` says what to do, or is empty."""

    name: str
    status: str
    result: str
    advice: str = ""


def main(argv: list[str]) -> int:
    """Print the checks, or the speed of a run."""
    parser = command_parser("doctor", _EXAMPLES)
    add = parser.add_argument
    add("--json", action="store_true", help="print JSON")
    add("--speed", action="store_true", help="measure training speed, and its share of the peak")
    add("overrides", nargs="*", metavar="key=value", help="settings of the run for --speed")
    arguments = parser.parse_intermixed_args(argv)
    if arguments.speed:
        return _speed(arguments.overrides, as_json=arguments.json)
    if arguments.overrides:
        raise UserError(f"{arguments.overrides[0]}: settings need --speed")
    checks = list(run_checks())
    if arguments.json:
        print(json.dumps([check._asdict() for check in checks], indent=1))
    for check in [] if arguments.json else checks:
        print_prose(f"{check.status:<6}{check.name:<13} {check.result}", hang=20)
        if check.advice:
            print_prose(f"-> {check.advice}", indent=" " * 20)
    return 0


def _speed(overrides: list[str], *, as_json: bool) -> int:
    from normlab.config.compose import compose
    from normlab.config.plain import to_dict
    from normlab.training.speed import measure

    config = to_dict(compose(overrides))
    with at_work("training some steps"):
        speed = measure(config)
    if as_json:
        print(json.dumps(speed, indent=1))
        return 0
    rate = speed["tokens_per_second"]
    print(
        f"{rate['median']:,.0f} {speed['unit']} per second of training "
        f"({rate['min']:,.0f} to {rate['max']:,.0f} in {rate['n']} measurements)\n"
        f"{speed['share_of_peak']:.0%} of this machine's peak of "
        f"{speed['peak_gflop_per_second']:,.0f} GFLOP/s, measured on its fastest matrix product\n"
        f"{speed['device']}, {speed['threads']} thread(s), {speed['precision']}; "
        f"{speed['params']:,} parameters, {speed['memory_bytes'] / 2**30:.1f} GiB of memory"
    )
    return 0


def run_checks() -> Iterator[Diagnosis]:
    """Check the device, the precision behind `precision=auto`, and the W&B login."""
    import torch

    from normlab.records.record import arithmetic_of
    from normlab.training.runtime import Runtime

    environment = Runtime.start(device="auto", precision="auto", threads=None).environment()
    device = str(environment["device"])
    if torch.version.cuda is not None and not torch.cuda.is_available():
        result = f"{device}; torch is built for CUDA {torch.version.cuda} but finds no GPU"
        yield Diagnosis("device", "warn", result, "run nvidia-smi to see why, or use the CPU")
    else:
        yield Diagnosis("device", "ok", f"{device}, {torch.get_num_threads()} threads for a run")
    _, precision, instructions = arithmetic_of(environment)
    yield Diagnosis("precision", "ok", f"precision=auto is {precision} ({instructions})")
    yield _wandb()


def _wandb() -> Diagnosis:
    from normlab.training.wandb import find_login, reach, resolve_mode

    login = find_login()
    mode = resolve_mode("auto", login)
    if not login.source:
        return Diagnosis(
            "wandb", "ok", f"mode auto is {mode}: no login", "to send runs: wandb login"
        )
    if mode != "online":
        return Diagnosis("wandb", "ok", f"mode auto is {mode}")
    try:
        reach(login.host, _SECONDS)
    except OSError as error:
        result = f"login in {login.source}; {login.host}: {error}"
        return Diagnosis(
            "wandb", "warn", result, "runs are kept offline; wandb sync uploads them later"
        )
    return Diagnosis("wandb", "ok", f"online at {login.host}, login in {login.source}")
