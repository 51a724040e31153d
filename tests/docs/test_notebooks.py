"""The notebooks in docs/ run from the first cell to the last, in an empty folder."""

import ast
import json

import pytest

from tests.docs.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
SHOWN = {"rounding_or_leak": ()}  # the others show tables and figures


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_is_stored_without_outputs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if "outputs" in cell]
    assert all(not cell["outputs"] for cell in cells)
    names, shown = {}, []
    for cell in cells:
        *body, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(body, []), path.name, "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), path.name, "eval"), names))
        else:
            exec(compile(ast.Module([last], []), path.name, "exec"), names)
    for kind in SHOWN.get(path.stem, ("_repr_html_", "_repr_svg_")):
        assert any(getattr(value, kind)() for value in shown if hasattr(value, kind)), kind
    assert capsys.readouterr().err == ""
