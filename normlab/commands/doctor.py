"""`normlab doctor`: check this machine, and with --speed measure training speed."""

import json

from normlab.commands._arguments import command_parser
from normlab.errors import UserError
from normlab.terminal import at_work, print_prose

_EXAMPLES = """examples:
  normlab doctor         one line per check: ok, or warn with what to do
  normlab doctor --speed norm=bn task=multi30k data_dir=FOLDER
"""


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
        raise UserError(f"{arguments.overrides[0]} is a setting for --speed; add --speed")
    from normlab.training.machine_checks import run_checks

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
    from normlab.config.run_config import to_dict
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
