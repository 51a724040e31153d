"""`normlab train`: one run; with -m or one of Hydra's search plugins, many.

Hydra's basic launcher only lists the runs of a grid, and the same loop as for studies runs them.
With another launcher (Slurm, Ray), a scheduler runs them, and `normlab list runs` shows them.
"""

import os
import shlex
import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import TYPE_CHECKING

from normlab.commands._run import train_once
from normlab.commands._sweep import HydraRuns
from normlab.config.folders import CONFIG_DIR, include_words
from normlab.config.launch import check_single, end_with_the_sweep
from normlab.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

_HELP = """usage: normlab train [-m] [my.yaml] [group=option ...] [key=value ...]

Train one run; with -m, one run for each combination of the values given.

examples:
  normlab train norm=bn task=toy batch_size=32
  normlab train norm=bn norm@decoder_norm=ln task=multi30k data_dir=FOLDER
  normlab train norm=ln 'sites={encoder.0.*:bn,*.self.q:rms}'
  normlab train -m norm=ln,bn batch_size=8,32,128 'seed=range(1,4)'
  normlab train experiment=gpt_bn data_dir=FOLDER debug=true  keep nothing
  normlab train my.yaml lr=1e-3 steps=500 name=baseline wandb=true

include=FOLDER        add your own norms, tasks, ... (see normlab norm --help);
                      also --config-dir FOLDER, hydra.searchpath=[file://FOLDER]
normlab list          all groups and options; with a GROUP, one group
normlab list keys     all keys with default, allowed values and meaning
--cfg job             print the whole config without training
--hydra-help          Hydra's own flags"""


def main(argv: list[str]) -> int:
    """Compose the config and train; Hydra handles the flags."""
    if argv in (["--help"], ["-h"]):
        print(_HELP)
        return 0
    from normlab.config.compose import compose_written
    from normlab.config.experiments import EXPERIMENT
    from normlab.config.overrides import check_given_once, first_run, typed, written_out

    end_with_the_sweep()
    again = shlex.join(["normlab", "train", *argv, *include_words()])
    check_given_once(argv)
    argv = written_out(argv)
    if (shown := shown_config(argv)) is not None:
        print(shown, end="")
        return 0
    values = typed(argv)
    many = any(text.startswith(("-", "hydra")) for text in argv)
    if many:
        if "true" in (values.get("debug"), values.get("observe.debug")):
            raise UserError("debug=true tries one run: omit -m and the flags of a sweep")
        if {"-m", "--multirun"}.intersection(argv):
            check_single("a sweep starts its own processes")
        if EXPERIMENT in values:
            compose_written(first_run(argv))  # an error in the file names the file
        return run_hydra(argv, again=again)
    return train_once(compose_written(argv), again=again)


def shown_config(argv: Sequence[str]) -> str | None:
    """Return the config of a run for `--cfg job`; None for other flags, which Hydra handles.

    Hydra would print its own composition, without the values of a recipe. The values that run have
    no interpolations, so `--resolve` changes nothing.
    """
    flags = ArgumentParser(add_help=False, allow_abbrev=False)
    flags.add_argument("--cfg", "-c")
    flags.add_argument("--package", "-p")
    flags.add_argument("--resolve", action="store_true")
    known, overrides = flags.parse_known_args(argv)
    if known.cfg != "job":
        return None
    if other := [text for text in overrides if text.startswith("-")]:
        raise UserError(f"--cfg job shows the config of one run: omit {other[0]}")
    from omegaconf import OmegaConf

    from normlab.config.compose import compose_written
    from normlab.config.plain import to_dict

    config = OmegaConf.create(to_dict(compose_written(overrides)))
    part = OmegaConf.select(config, known.package) if known.package else config
    if not OmegaConf.is_config(part):
        raise UserError(f"--package {known.package}: the config has no such part")
    return OmegaConf.to_yaml(part)


# Many runs ----------------------------------------------------------------------------------------


def run_hydra(argv: list[str], *, again: str) -> int:
    """Let Hydra parse the arguments, run everything, and return the exit status.

    `again` is the command that resumes.
    """
    import hydra

    from normlab.config.compose import CONFIG_NAME, register, with_recipe
    from normlab.config.overrides import quoted, typed

    register()
    if "slurm" in typed(argv).get("hydra/launcher", "") and shutil.which("srun") is None:
        raise UserError(
            "hydra/launcher=submitit_slurm needs Slurm, but there is no srun here: start the sweep "
            "on a login node of the cluster, or leave hydra/launcher out to run it on this machine"
        )
    runs = HydraRuns(typed(argv), again)

    def job(config: "DictConfig") -> float | None:  # jobs are named after its module, train
        return runs.execute(config)

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach cli.py, which prints one line
    main = hydra.main(config_path=str(CONFIG_DIR), config_name=CONFIG_NAME, version_base="1.3")
    place = [f"hydra.sweep.dir={quoted(str(runs.folder))}"] if runs.is_search else []
    sys.argv = ["normlab train", *flags_first([*with_recipe(argv), *place])]
    try:
        main(job)()
        return runs.finish()
    except Exception as error:
        if not type(error).__module__.startswith("submitit."):
            raise
        reason = " ".join(str(error).splitlines()[:2])  # the rest is the output of the job
        raise UserError(f"{reason}; start the sweep again to resume") from error


def flags_first(arguments: Sequence[str]) -> list[str]:
    """Return Hydra's arguments with its flags before all overrides.

    argparse takes one block of overrides, and calls a second one, after a flag, unrecognized.
    """
    from hydra._internal.utils import get_args_parser

    overrides: list[str] = get_args_parser().parse_intermixed_args([*arguments]).overrides
    flags = [*arguments]
    for override in overrides:
        flags.remove(override)
    return [*flags, *overrides]
