"""Explains norms and placements in text: `normlab.explain` and `normlab explain`."""

from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Literal

from normlab.config.error_messages import check_option
from normlab.config.registry import norm_name
from normlab.errors import UserError
from normlab.terminal import print_section

if TYPE_CHECKING:
    from normlab.inspection.explain.section import Section


@dataclass(frozen=True, repr=False)
class Explained:
    """The sections that `normlab explain` shows about some names. `repr()` returns their text."""

    names: "Sequence[str]"
    sections: "Sequence[Section]"

    def __repr__(self) -> str:
        with redirect_stdout(StringIO()) as text:
            for title, paragraph, drawing, table in self.sections:
                print_section(title, paragraph, *table, drawing)
        return text.getvalue().strip("\n")


def explain(
    *names: str, layout: Literal["text", "images"] = "text", table: Literal["marks"] | None = None
) -> Explained:
    """Return what `normlab explain` shows about these norms or, without names, an overview of all.

    `explain("placement=pre", "post")` shows placements. With `layout="images"`, it draws which
    values of images a norm pools over, and with `table="marks"`, it works through the marks of a
    class; both show `bn` and `ln` if no norm is named. The printed text is as wide as the terminal.
    Raises UserError for an unknown name.
    """
    if are_placements(names):
        if layout != "text" or table is not None:
            raise UserError("--layout and --table show norms; omit placement=")
        return _explain_placements([name.removeprefix("placement=") for name in names])
    if layout == "images" and table is not None:
        raise UserError(f"--layout {layout} and --table {table} are two examples; keep one")
    chosen = [norm_name(name.removeprefix("norm=")) for name in names]
    for name in chosen:  # before torch is loaded
        check_option("norm", name)
    from normlab.config.registry import options

    by_name = {option.name: option for option in options("norm")}
    if layout == "images" or table is not None:
        from normlab.inspection.explain.class_marks import of_class
        from normlab.inspection.explain.image_layout import in_images

        draw = in_images if table is None else of_class
        chosen = list(dict.fromkeys(chosen or ["bn", "ln"]))
        return Explained(chosen, [draw(by_name[name]) for name in chosen])
    from normlab.inspection.explain.norm_text import compared, explanation, overview  # loads torch

    explanations = [explanation(by_name[name]) for name in dict.fromkeys(chosen)]
    last = compared(explanations) if explanations else overview([*by_name.values()])
    sections = [section for each in explanations for section in each.sections]
    return Explained(chosen, [*sections, last])


def are_placements(names: Sequence[str]) -> bool:
    """Return whether the names are placements, as in `placement=pre post`."""
    return bool(names) and names[0].startswith("placement=")


def _explain_placements(names: Sequence[str]) -> Explained:
    for name in names:
        check_option("placement", name)
    from normlab.config.registry import options
    from normlab.inspection.explain.placement_steps import compared, wiring

    by_name = {option.name: option for option in options("placement")}
    wirings = [wiring(by_name[name]) for name in dict.fromkeys(names)]
    sections = [section for each in wirings for section in each.sections]
    return Explained(names, [*sections, compared(wirings)])
