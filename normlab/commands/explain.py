"""`normlab explain`: which values a norm pools over, and how placements are wired."""

from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Literal

from normlab.commands._arguments import command_parser
from normlab.commands._terminal import at_work
from normlab.commands.inspect import show
from normlab.config.overrides import check_option, norm_name
from normlab.errors import UserError

if TYPE_CHECKING:
    from normlab.inspection.explain import Section

_EXAMPLES = """examples:
  normlab explain           all norms on one screen
  normlab explain ln        one norm: drawing, example, padding, modes, state
  normlab explain ln bn     both, then side by side
  normlab explain bn ln in gn --layout images   what they pool in N, C, H, W
  normlab explain bn ln --table marks           the marks of a class
  normlab explain placement=pre post            both wirings
"""


def main(argv: list[str]) -> int:
    """Explain norms or placements; raises `UserError` for an unknown one."""
    parser = command_parser("explain", _EXAMPLES)
    add = parser.add_argument
    add(
        "names", nargs="*", metavar="norm", help="norms, or placement=NAME NAME; default: all norms"
    )
    text = "draw an example of text or of images; default: text"
    add("--layout", choices=["text", "images"], default="text", help=text)
    add("--table", choices=["marks"], help="work through the marks of a class instead")
    arguments = parser.parse_args(argv)
    with at_work("computing the example"):
        explained = explain(*arguments.names, layout=arguments.layout, table=arguments.table)
    kind = "placement" if _placements(arguments.names) else "norm"
    then = f"train {kind}={explained.names[-1]}" if explained.names else "explain ln bn"
    print(f"\n{explained}\n\nNext: normlab {then}")
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


def explain(
    *names: str, layout: Literal["text", "images"] = "text", table: Literal["marks"] | None = None
) -> Explained:
    """Return what `normlab explain` shows about these norms, or an overview of all.

    `explain("placement=pre", "post")` shows placements. `layout="images"` draws the values of
    images that norms pool over, `table="marks"` works through the marks of a class. When printed,
    the text is as wide as the terminal. Raises UserError for an unknown name.
    """
    if _placements(names):
        if layout != "text" or table is not None:
            raise UserError("--layout and --table show norms; leave out placement=")
        return _explain_placements([name.removeprefix("placement=") for name in names])
    chosen = [norm_name(name.removeprefix("norm=")) for name in names]
    for name in chosen:  # before torch is loaded
        check_option("norm", name)
    from normlab.config.registry import options

    by_name = {option.name: option for option in options("norm")}
    if layout == "images" or table is not None:
        from normlab.inspection.images import in_images
        from normlab.inspection.marks import of_class

        draw = in_images if table is None else of_class
        chosen = list(dict.fromkeys(chosen or ["bn", "ln"]))
        return Explained(chosen, [draw(by_name[name]) for name in chosen])
    from normlab.inspection.explain import compared, overview
    from normlab.inspection.explain import explain as explained  # loads torch

    explanations = [explained(by_name[name]) for name in dict.fromkeys(chosen)]
    last = compared(explanations) if explanations else overview([*by_name.values()])
    sections = [section for each in explanations for section in each.sections]
    return Explained(chosen, [*sections, last])


def _placements(names: Sequence[str]) -> bool:
    """Return whether names are placements: the first one says so, as in `placement=pre post`."""
    return bool(names) and names[0].startswith("placement=")


def _explain_placements(names: Sequence[str]) -> Explained:
    for name in names:
        check_option("placement", name)
    from normlab.config.registry import options
    from normlab.inspection.wiring import compared, wiring

    by_name = {option.name: option for option in options("placement")}
    wirings = [wiring(by_name[name]) for name in dict.fromkeys(names)]
    sections = [section for each in wirings for section in each.sections]
    return Explained(names, [*sections, compared(wirings)])
