"""`normlab explain`: which values a norm pools over, worked through on the documents' numbers."""

import json
from dataclasses import asdict

from normlab.commands._arguments import command_parser
from normlab.commands.norm import check_names

_EXAMPLES = """examples:
  normlab explain           all norms on one screen
  normlab explain ln        one: drawing, worked tensor, padding, modes, state
  normlab explain ln bn     two of them, then side by side
  normlab explain --images  on images, as the group norm paper draws them
  normlab explain bn --json  the same facts for programs
"""


def main(argv: list[str]) -> int:
    """Explain norms; raises `ValueError` for an unknown norm."""
    does = "Show what a norm pools over, with a drawing and a worked example."
    parser = command_parser("explain", does, _EXAMPLES)
    parser.add_argument("norms", nargs="*", metavar="norm", help="default: an overview of all")
    text = "on images, as in Wu and He 2018, figure 2; default: its four norms"
    parser.add_argument("--images", action="store_true", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    check_names(arguments.norms)
    from normlab.config.registry import options
    from normlab.inspect import screen
    from normlab.inspect.worked import explain, facts

    there = {option.name: option for option in options("norm")}
    names = dict.fromkeys(arguments.norms or (screen.FIGURE if arguments.images else ()))
    pages = [explain(there[name]) for name in names]
    every = [] if pages else sorted(map(facts, there.values()), key=lambda each: len(each.pools))
    if arguments.json:
        found = {"norms" if pages else "overview": [asdict(each) for each in pages or every]}
        print(json.dumps({"format": "normlab.explain/1", **found}, indent=1, ensure_ascii=False))
    elif arguments.images:
        screen.show_images(pages)
    elif not pages:
        screen.show_all(every)
    else:
        for page in pages:
            screen.show(page)
        if len(pages) > 1:
            screen.show_side_by_side(pages)
    return 0
