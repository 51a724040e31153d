"""The style of each row's lines."""

from normlab.reports.figures.line_styles import DARK, HUES, LIGHT, styles_of


def test_a_norm_has_the_same_hue_in_every_chart_and_rows_differ_in_style():
    assert len(set(LIGHT.hues)) == len(set(DARK.hues)) == HUES
    alone, among = styles_of({"ln": "ln"}), styles_of({"bn": "bn", "none": "none", "mine": "ln"})
    assert alone["ln"].hue == among["mine"].hue
    found = styles_of({f"{norm} {n}": norm for norm in ("ln", "my_norm") for n in range(4)})
    assert all(0 <= style.hue < HUES for style in found.values())
    assert len({(style.hue, style.dashes) for style in found.values()}) == 8
    assert (
        len({style.hue for style in styles_of({f"ln {n}": "ln" for n in range(4)}).values()}) == 1
    )
    many = styles_of({f"ln {n}": "ln" for n in range(20)}).values()
    assert len({(style.hue, style.dashes) for style in many}) == 20, "no two lines look the same"
