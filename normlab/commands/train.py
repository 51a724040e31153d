"""`normlab train`: one run; with -m or one of Hydra's search plugins, many.

Hydra's basic launcher only lists the runs of a grid, and the same loop as for studies runs them.
With another launcher (Slurm, Ray), a scheduler runs them, and `normlab list runs` shows them.
"""

import shlex
from functools import partial

from normlab.commands._run import train_and_summarize, train_once
from normlab.config.folders import include_words
from normlab.config.launch import end_with_the_sweep

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
    from normlab.config.compose import compose_written, shown_config
    from normlab.config.overrides import check_given_once, written_out

    end_with_the_sweep()
    again = shlex.join(["normlab", "train", *argv, *include_words()])
    check_given_once(argv)
    argv = written_out(argv)
    if (shown := shown_config(argv)) is not None:
        print(shown, end="")
        return 0
    if any(text.startswith(("-", "hydra")) for text in argv):
        from normlab.commands.compare import main as compare
        from normlab.studies.hydra_sweep import SweepActions, run_hydra

        alone = partial(train_once, again=again)
        return run_hydra(argv, again, SweepActions(train_and_summarize, alone, compare))
    return train_once(compose_written(argv), again=again)
