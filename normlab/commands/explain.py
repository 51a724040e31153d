"""`normlab explain`: what a norm pools over, worked on the documents' own numbers."""

import json

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
    """Explain norms; raises `ValueError` for one that does not exist."""
    does = "Show what a norm pools over, with a drawing and a worked example."
    parser = command_parser("explain", does, _EXAMPLES)
    parser.add_argument("norms", nargs="*", metavar="norm", help="default: an overview of all")
    text = "on images, as in Wu and He 2018, figure 2; default: its four norms"
    parser.add_argument("--images", action="store_true", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    check_names(arguments.norms)
    from normlab.config.registry import options as all_options
    from normlab.inspect import screen
    from normlab.inspect.page import explain, overview

    if arguments.images and not arguments.norms:
        arguments.norms = list(screen.FIGURE)
    there = {option.name: option for option in all_options("norm")}
    options = [there[name] for name in dict.fromkeys(arguments.norms)] or list(there.values())
    pages = [explain(option) for option in options] if arguments.norms else []
    if arguments.json:
        facts: dict[str, object] = {"format": "normlab.explain/1"}
        if arguments.norms:
            facts["norms"] = [page.plain() for page in pages]
        else:
            facts["overview"] = overview(options)
        print(json.dumps(facts, indent=1, ensure_ascii=False))
        return 0
    if not arguments.norms:
        screen.show_all(overview(options))
    if arguments.images:
        screen.show_images(pages)
        return 0
    for page in pages:
        screen.show(page)
    if len(pages) > 1:
        screen.show_side_by_side(pages)
    return 0
