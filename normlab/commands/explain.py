"""`normlab explain`: what a norm pools over, worked on the documents' own numbers."""

import argparse
import json

from normlab.commands._arguments import HelpFormatter

HELP = "show what a norm pools over, with a drawing and a worked example"

_EXAMPLES = """examples:
  normlab explain              all norms on one screen
  normlab explain ln           one norm: drawing, worked tensor, padding, modes, state
  normlab explain ln bn        two of them, then side by side
  normlab explain --documents  what each sentence of the documents pools over
  normlab explain --images     on images: N, C and (H, W), as the group norm paper draws them
  normlab explain bn --json    the same facts for programs
"""


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab explain",
        description="S" + HELP[1:] + ".",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument("norms", nargs="*", metavar="norm", help="default: an overview of all")
    result.add_argument(
        "--images",
        action="store_true",
        help="on images, as in Wu and He 2018, figure 2; default: its four norms",
    )
    result.add_argument("--documents", action="store_true", help="show the documents' sentences")
    result.add_argument("--json", action="store_true", help="print JSON")
    return result


def main(argv: list[str]) -> int:
    """Explain norms; raises `ValueError` for one that does not exist."""
    arguments = parser().parse_args(argv)
    from normlab.inspect import overview, screen
    from normlab.inspect.page import choose, explain
    from normlab.inspect.page import overview as rows

    if arguments.images and not arguments.norms:
        arguments.norms = list(overview.FIGURE)
    options = choose(arguments.norms)
    pages = [explain(option) for option in options] if arguments.norms else []
    if arguments.json:
        facts: dict[str, object] = {"format": "normlab.explain/1"}
        if arguments.norms:
            facts["norms"] = [page.plain() for page in pages]
        else:
            facts["overview"] = [vars(row) for row in rows(options)]
        if arguments.documents or not arguments.norms:
            facts["documents"] = overview.documents_plain()
        print(json.dumps(facts, indent=1, ensure_ascii=False))
        return 0
    if arguments.documents:
        overview.show_documents()
    elif not arguments.norms:
        overview.show_all(rows(options))
    if arguments.images:
        overview.show_images(pages)
        return 0
    for page in pages:
        screen.show(page)
        screen.say("")
    if len(pages) > 1:
        overview.show_side_by_side(pages)
    return 0
