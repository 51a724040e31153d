"""The subcommands by group, each with its description; a command's file has `main(argv) -> int`.

Importing a command's file is cheap: heavy imports are inside `main`.
"""

COMMANDS = {
    "train and compare": {
        "train": "train one run, or a sweep with -m",
        "demo": "see how LN, BN and no norm differ",
        "compare": "runs side by side; sample translations, a paired bootstrap",
        "eval": "re-score finished runs with other settings",
        "predict": "translate or continue text with a finished run",
        "report": "write a page about any runs, with figures",
    },
    "look inside": {
        "inspect": "examine a model, at initialization or trained, or its data",
        "explain": "show what norms pool over and what they compute",
    },
    "norms": {
        "norm": "create a norm, check it, make its report card",
        "swap": "put other norms into a trained model of transformers",
    },
    "studies and claims": {
        "study": "run, plan, tune, publish and verify studies",
        "claims": "show claims, what was measured, and the verdicts",
    },
    "tools": {
        "list": "list norms, placements, studies, keys, runs, ...",
        "export": "write a run's weights to a file, or save a W&B workspace",
        "doctor": "check this machine; --speed measures training on it",
    },
}


def names() -> list[str]:
    """Return the subcommands in alphabetical order."""
    return sorted(name for group in COMMANDS.values() for name in group)
