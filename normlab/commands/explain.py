"""`normlab explain`: which values a norm pools over, on the articles' example tensor."""

from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING

from normlab.commands._arguments import command_parser
from normlab.commands._terminal import at_work
from normlab.commands.inspect import show
from normlab.config.overrides import check_option, norm_name

if TYPE_CHECKING:
    from normlab.inspect.explain import Section

_EXAMPLES = """examples:
  normlab explain           all norms on one screen
  normlab explain ln        one norm: drawing, example, padding, modes, state
  normlab explain ln bn     both, then side by side
"""


def main(argv: list[str]) -> int:
    """Explain norms; raises `UserError` for an unknown norm."""
    parser = command_parser("explain", _EXAMPLES)
    parser.add_argument("norms", nargs="*", metavar="norm", help="default: an overview of all")
    names = parser.parse_args(argv).norms
    with at_work("computing the example"):
        found = explain(*names)
    then = f"train norm={found.names[-1]}" if names else "explain ln bn"
    print(f"\n{found}\n\nNext: normlab {then}")
    return 0


@dataclass(frozen=True, repr=False)
class Explained:
    """The sections that `normlab explain` shows about some norms; printed, they are its text."""

    names: "Sequence[str]"
    sections: "Sequence[Section]"

    def __repr__(self) -> str:
        with redirect_stdout(StringIO()) as text:
            for title, paragraph, drawing, table in self.sections:
                show(title, paragraph, *table, drawing)
        return text.getvalue().strip("\n")


def explain(*norms: str) -> Explained:
    """Return what `normlab explain` shows about these norms, or an overview of all.

    When printed, the text is as wide as the terminal. Raises UserError for an unknown norm.
    """
    names = [norm_name(name.removeprefix("norm=")) for name in norms]
    for name in names:  # before torch is loaded
        check_option("norm", name)
    from normlab.config.registry import options
    from normlab.inspect.explain import compared, overview
    from normlab.inspect.explain import explain as explained  # loads torch

    there = {option.name: option for option in options("norm")}
    found = [explained(there[name]) for name in dict.fromkeys(names)]
    last = compared(found) if found else overview([*there.values()])
    return Explained(names, [*(section for each in found for section in each.sections), last])
