"""The subcommands by group, each with its description; a command's file has `main(argv) -> int`.

Importing a command's file is cheap: heavy imports are inside `main`.
"""

COMMANDS = {
    "train and compare": {
        "train": "train one run, or a sweep with -m",
        "demo": "a first table in minutes: LN, BN and no norm",
        "compare": "runs side by side; their samples, a paired bootstrap",
        "eval": "score finished runs again, under other settings",
        "predict": "translate or continue text with a finished run",
        "report": "the page and the figures of any runs",
    },
    "look inside": {
        "inspect": "examine a model, at initialization or trained, or its data",
        "explain": "what norms pool over and what they compute",
    },
    "norms": {"norm": "a new norm of your own, its contract, its report card"},
    "studies and claims": {
        "study": "run, plan, tune, publish and verify studies",
        "claims": "what was claimed, what was measured, the verdict",
    },
    "tools": {
        "list": "norms, placements, studies, keys, runs, ...",
        "export": "a run's weights, norms folded; a W&B workspace",
        "doctor": "check this machine; --speed measures training on it",
    },
}


def names() -> list[str]:
    """Return the subcommands in alphabetical order."""
    return sorted(name for group in COMMANDS.values() for name in group)
