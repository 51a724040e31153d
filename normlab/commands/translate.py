"""`normlab translate RUN < in > out`: use a finished run on lines of text."""

import argparse
import sys

from normlab.commands._at_work import at_work
from normlab.commands._help import HelpFormatter
from normlab.commands._paths import as_path
from normlab.commands._runs import load

HELP = "translate lines of text with a finished run"

EXAMPLES = """\
examples:
  echo "Der alte Mann schläft." | normlab translate runs/toy-ln-pre-.../seed1
  normlab translate RUN task.test_search.beam=1 < in.de > out.en
"""


def main(argv: list[str]) -> int:
    """Read source sentences from standard input, write translations to standard output."""
    parser = argparse.ArgumentParser(
        "normlab translate",
        description=HELP,
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("run", type=as_path, help="a run folder, such as runs/toy-ln-pre-.../seed1")
    parser.add_argument(
        "changes", nargs="*", metavar="key=value", help="settings that replace the run's"
    )
    parser.add_argument(
        "--weights",
        metavar="NAME",
        help="last, average, best_loss, best_<score>; default: those that were tested",
    )
    arguments = parser.parse_intermixed_args(argv)
    if sys.stdin.isatty():
        print("reading sentences from the terminal, one a line; end with Ctrl-D", file=sys.stderr)

    from normlab.data.corpus import split_lines

    # Lines are read as bytes: only a newline ends one, and what is not UTF-8 is named by its line.
    lines = split_lines(sys.stdin.buffer.read(), origin="standard input")
    run = load(arguments.run, arguments.changes, weights=arguments.weights)
    translate = getattr(run.task, "translate", None)
    if translate is None:
        raise ValueError(f"{arguments.run} is a run of a task that does not translate")
    with at_work("translating"), run.runtime.autocast():
        translations = translate(run.model, lines)
    for line in translations:
        print(line)
    return 0
