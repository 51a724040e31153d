"""`normlab demo`: trains LN, BN and no norm on the built-in corpus, and shows why they differ."""

import shlex
import sys

from normlab.commands._arguments import add_notes, command_parser
from normlab.config.folders import include_words
from normlab.demo import COLUMNS, notes, plan, rows
from normlab.reports.legend import print_legend
from normlab.terminal import print_prose, print_table

_EXAMPLES = """examples:
  normlab demo             how LN, BN and no norm differ, in one to two minutes
  normlab demo deep        6+6 layers: which still train, in three minutes
  normlab demo steps=200   with other settings, as for normlab train

The runs and the page are kept in demo/, separate from other runs. The same
command shows them again, or resumes after Ctrl-C.
"""


def main(argv: list[str]) -> int:
    """Train the runs that have not ended, show the table and conclusions, and write the page."""
    parser = command_parser("demo", _EXAMPLES)
    text = "`deep` for a deeper model; settings as for normlab train"
    parser.add_argument("settings", nargs="*", metavar="deep | key=value", help=text)
    add_notes(parser)
    arguments = parser.parse_args(argv)
    words: list[str] = arguments.settings
    demo = plan([word for word in words if word != "deep"], deep="deep" in words)
    command = shlex.join(["normlab", "demo", *words, *include_words()])
    print_prose("Three small Transformers learn to translate German. Only their norm differs.")
    try:
        if demo.left:
            demo.train()
        else:
            print("They have already been trained.")
        results = demo.measured()
    except KeyboardInterrupt:
        print(f"stopped; resume with: {command}", file=sys.stderr)
        raise
    print()
    print_table(COLUMNS, rows(results), numeric=COLUMNS[1:])
    print_legend(notes(results), whole=arguments.notes)
    print()
    paragraphs = demo.conclusions(results)
    for text in paragraphs:
        print_prose(text)
    page = demo.write_page(results, paragraphs, command)
    print(f"\nthe page with the curves: {page}")
    print(f"next: normlab {'explain ln bn' if demo.deep else 'demo deep'}")
    return 0
