"""The subcommands by group, with descriptions. Each command's module defines `main`.

`main(argv) -> int` parses, calls a function of another package and prints. Importing a command is
cheap: heavy imports are inside `main`. A new command needs its module and a line here.
"""

COMMANDS = {
    "train and compare": {
        "train": "train one run, or a sweep with -m",
        "demo": "see how LN, BN and no norm differ",
        "compare": "compare runs by their scores or translations",
        "eval": "re-score finished runs with other settings",
        "predict": "translate or continue text with a finished run",
        "report": "write a page about any runs, with figures",
    },
    "look inside": {
        "inspect": "examine a model, at initialization or trained, or its data",
        "explain": "show what norms pool over and what they compute",
    },
    "norms": {
        "norm": "create your own norm, check it, make its report card",
        "swap": "put other norms into a trained model, adapt it, compare losses",
    },
    "studies and claims": {
        "study": "run, plan, tune, publish and verify studies",
        "claims": "show claims, what was measured, and the verdicts",
        "articles": "show the articles' tables, with our findings in each cell",
    },
    "tools": {
        "list": "list norms, placements, studies, keys, runs and more",
        "export": "write a run's weights to a file, or save a W&B workspace",
        "doctor": "check this machine; --speed measures training on it",
    },
}
DOES = dict(sorted(pair for group in COMMANDS.values() for pair in group.items()))
"""The description of each subcommand, in alphabetical order."""
