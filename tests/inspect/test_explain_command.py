"""The command: every option in text and JSON, the overview, images and errors."""

import json
import re

import pytest

from normlab.commands.explain import main
from normlab.config.registry import option_names

OPTIONS = option_names("norm")


def printed(capsys, *argv):
    assert main(list(argv)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ("none", "gn", "bn", "prepbn"))
def test_a_norm_is_explained_on_one_page(capsys, name):
    out = printed(capsys, name)
    assert out.startswith(f"{name}: ")
    for heading in ("On the documents' tensor", "What follows, and what it keeps"):
        assert f"\n{heading}\n" in out
    assert f"normlab train norm={name}" in out
    assert "…" not in out and "\x1b" not in out


@pytest.mark.parametrize("name", ("none", "gn", "bn"))
def test_an_option_is_explained_for_programs(capsys, name):
    facts = json.loads(printed(capsys, name, "--json"))
    (norm,) = facts["norms"]
    assert facts["format"] == "normlab.explain/1" and norm["name"] == name
    assert norm["shape"] == [2, 3, 4] and norm["refused"] == ""
    assert norm["example"] in norm["pooled"]
    assert {"worked", "padding", "parameters", "buffers"} <= norm.keys()


def test_the_overview_has_every_option_and_fits_a_screen(capsys):
    out = printed(capsys)
    lines = out.splitlines()
    for name in OPTIONS:
        assert any(line.split()[:1] == [name] for line in lines)
    assert max(map(len, lines)) <= 80
    facts = json.loads(printed(capsys, "--json"))
    assert {row["name"] for row in facts["overview"]} == set(OPTIONS)
    rows = {row["name"]: row for row in facts["overview"]}
    assert rows["bn"]["running"] and rows["bn"]["pools"] == ["batch", "position"]
    assert (rows["rms"]["sizes"], rows["bn_sample"]["sizes"][1]) == (["D", "0"], "2048")


def test_several_norms_are_shown_and_compared(capsys):
    out = printed(capsys, "ln", "bn")
    assert out.index("\nbn: ") < out.index("Side by side")
    table = out[out.index("Side by side") :]
    assert re.search(r"mean, var +2\.50, 1\.25 +4\.00, 11\.67", table)
    assert re.search(r"one at a time +yes +in eval", table)


def test_a_running_mean_square_starts_from_a_mean_square(capsys):
    out = printed(capsys, "pn")
    assert re.search(r"group +batch mean square +running mean square\n", out)
    assert "starting from a mean square of 1" in out and "mean 0 and variance 1" not in out
    assert "shown at the start" in out


def test_the_drawing_marks_a_value_and_what_is_pooled_with_it(capsys):
    lines = [line.split() for line in printed(capsys, "bn_sample").splitlines()]
    assert ["token", "1", "[*1]", "[2]", "[3]", "[4]", "[-1]", "[0]", "[1]", "[2]"] in lines
    assert ["token", "2", "5", "6", "7", "8", "3", "4", "5", "6"] in lines


def test_images_are_drawn_by_the_axes_of_the_group_norm_paper(capsys):
    out = printed(capsys, "--images")
    drawn = {block.split()[0]: block for block in out.split("\n\n")[1:5]}
    assert [*drawn] == ["bn", "seqn", "in", "gn_sample"]
    pooled = {name: len(re.findall(r"\[\*?-?\d+\]", block)) for name, block in drawn.items()}
    assert pooled == {"bn": 6, "seqn": 12, "in": 3, "gn_sample": 6}
    assert re.search(r"seqn +layer norm +\(H, W\), C +GroupNorm\(1, C\)", out)


def test_an_unknown_norm_names_the_options():
    with pytest.raises(ValueError, match=r"no norm 'layernorm': there are .*ln"):
        main(["layernorm"])
