"""`normlab explain`: which values a norm pools over, on the articles' example tensor."""

from normlab.commands._arguments import command_parser
from normlab.commands._terminal import at_work
from normlab.commands.inspect import show
from normlab.commands.norm import check_names
from normlab.config.shorthand import written_out

_EXAMPLES = """examples:
  normlab explain           all norms on one screen
  normlab explain ln        one norm: drawing, example, padding, modes, state
  normlab explain ln bn     both, then side by side
"""


def main(argv: list[str]) -> int:
    """Explain norms; raises `ValueError` for an unknown norm."""
    does = "Show what a norm pools over, with a drawing and a worked example."
    parser = command_parser("explain", does, _EXAMPLES)
    parser.add_argument("norms", nargs="*", metavar="norm", help="default: an overview of all")
    typed = [f"norm={name.removeprefix('norm=')}" for name in parser.parse_args(argv).norms]
    names = [text.removeprefix("norm=") for text in written_out(typed)]
    check_names(names)
    from normlab.config.registry import options

    there = {option.name: option for option in options("norm")}
    with at_work("computing the example"):
        from normlab.inspect.explain import compared, explain, overview  # loads torch

        found = [explain(there[name]) for name in dict.fromkeys(names)]
        sections = [section for each in found for section in each.sections]
        sections.append(compared(found) if found else overview([*there.values()]))
    for title, text, drawing, table in sections:
        show(title, text, table, drawing)
    print(f"\nNext: normlab {f'train norm={names[-1]}' if names else 'explain ln bn'}")
    return 0
