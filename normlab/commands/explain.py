"""`normlab explain`: which values a norm pools over, and how placements are wired."""

from normlab.commands._arguments import command_parser
from normlab.inspection.explain.explain import are_placements, explain
from normlab.terminal import at_work

_EXAMPLES = """examples:
  normlab explain           all norms on one screen
  normlab explain ln        one norm: drawing, example, padding, modes, state
  normlab explain ln bn     each by itself, then both side by side
  normlab explain bn ln in gn --layout images   what they pool in N, C, H, W
  normlab explain bn ln --table marks           the marks of a class
  normlab explain placement=pre post            both wirings
"""


def main(argv: list[str]) -> int:
    """Explain norms or placements. Raise `UserError` for an unknown one."""
    parser = command_parser("explain", _EXAMPLES)
    add = parser.add_argument
    names = "norms, or placement=NAME NAME; default: all norms"
    add("names", nargs="*", metavar="norm", help=names)
    text = "draw an example of text or of images (bn and ln if no norm is named); default: text"
    add("--layout", choices=["text", "images"], default="text", help=text)
    add(
        "--table",
        choices=["marks"],
        help="work through the marks of a class instead (of bn and ln, likewise)",
    )
    arguments = parser.parse_args(argv)
    with at_work("computing the example"):
        explained = explain(*arguments.names, layout=arguments.layout, table=arguments.table)
    kind = "placement" if are_placements(arguments.names) else "norm"
    then = f"train {kind}={explained.names[-1]}" if explained.names else "explain ln bn"
    print(f"\n{explained}\n\nNext: normlab {then}")
    return 0
