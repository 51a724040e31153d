"""A study with a tuning, and its trials."""

from normlab.commands import study as command


def value(run):
    return next(o for o in reversed(run.overrides) if o.startswith("optim.lr=")).split("=")[1]


def tuning(capsys, *argv):
    code = command.main(["tune", "one", *argv, "--processes", "1", "--results", "results"])
    return code, capsys.readouterr().out
