"""`normlab explain`: what a norm pools over, worked on the documents' own numbers."""

import argparse
import json

from normlab.commands._help import HelpFormatter
from normlab.commands._paths import as_path

HELP = "show what a norm pools over, with pictures and a worked example"

_EXAMPLES = """examples:
  normlab explain                        all norms on one screen
  normlab explain ln                     one norm: picture, worked tensor, padding, modes, cost
  normlab explain ln bn                  two of them, then side by side
  normlab explain --documents            what each sentence of the documents pools over
  normlab explain ln bn --svg norms.svg  the picture for print and screen
  normlab explain --pictures             of pictures: N, C and (H, W), as the group norm paper draws
  normlab explain bn --json              the same facts for programs
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
    result.add_argument("--svg", type=as_path, metavar="FILE", help="write the picture to FILE")
    result.add_argument(
        "--pictures",
        action="store_true",
        help="of pictures, as Wu and He 2018, figure 2; default: its four norms",
    )
    result.add_argument("--documents", action="store_true", help="show the documents' sentences")
    result.add_argument("--json", action="store_true", help="print JSON")
    return result


def main(argv: list[str]) -> int:
    """Explain norms; raises `ValueError` for one that does not exist."""
    arguments = parser().parse_args(argv)
    from normlab.explain import overview, pictures, terminal
    from normlab.explain.block import TEXT
    from normlab.explain.page import choose, pages

    if arguments.pictures and not arguments.norms:
        arguments.norms = list(pictures.FIGURE)
    options = choose(arguments.norms)
    explained = pages(arguments.norms) if arguments.norms or arguments.svg else []
    if arguments.svg:
        from normlab.explain.svg import picture
        from normlab.records.atomic import atomic_write

        with atomic_write(arguments.svg) as file:
            file.write(picture(explained, pictures.PICTURE if arguments.pictures else TEXT))
    if arguments.json:
        facts: dict[str, object] = {"format": "normlab.explain/1"}
        if arguments.norms:
            facts["norms"] = [page.plain() for page in explained]
        else:
            facts["overview"] = [vars(row) for row in overview.rows(options)]
        if arguments.documents or not arguments.norms:
            facts["documents"] = overview.documents_plain()
        print(json.dumps(facts, indent=1, ensure_ascii=False))
        return 0
    if arguments.documents:
        overview.show_documents()
    elif not arguments.norms:
        overview.show(overview.rows(options))
    if arguments.pictures:
        pictures.show(explained)
    else:
        for page in explained if arguments.norms else []:
            terminal.show(page)
            terminal.console().print()
        if len(arguments.norms) > 1:
            terminal.show_side_by_side(explained)
    if arguments.svg:
        terminal.say(f"wrote {arguments.svg}")
    return 0
