"""A norm of the user's own that does not work is refused by name, not blamed on the model."""

import re

import pytest

from normlab.cli import main
from tests.tiny_runs import tiny, write_corpus


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("x[..., :-1]", r"returns torch.float32 \[2, 3, 15\] for an input .* \[2, 3, 16\]"),
        ("x.double()", r"returns torch.float64 \[2, 3, 16\] for an input .*"),
        ("None", "returns None, not a tensor"),
    ],
)
def test_an_own_norm_that_does_not_work_is_refused_by_name(returned, said, tmp_path, capsys):
    own = tmp_path / "own"
    assert main(["norm", "new", "odd", "--in", str(own)]) == 0
    text = (own / "odd.py").read_text()
    start = text.index("wide, weight, bias = ")
    (own / "odd.py").write_text(f"{text[:start]}return {returned}\n")
    given = tiny(write_corpus(tmp_path / "text"), tmp_path / "runs", "norm=odd", f"include={own}")
    for command in ("train", "inspect"):
        assert main([command, *given]) == 1
        says = rf"norm=odd: OddNorm's forward {said}; run normlab norm check odd .?include="
        assert re.search(says, capsys.readouterr().err)
    assert not [*tmp_path.rglob("config.yaml")]
