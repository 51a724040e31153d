"""Published tables are made again and verified; what is wrong costs itself alone."""

import pytest

from normlab.commands.study import main
from normlab.records.packed import RECORDS
from normlab.reports.published import publish
from normlab.studies import load_study
from tests.reports.tables import made, planned

TABLES = ("table.md", "table.tex", "table.csv")


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("padding", "precision"):
        study = load_study(name)
        runs = [
            (planned(r, s), made("ln", s, {"test/bleu": 1.0 + s})) for r in ("ln",) for s in (1, 2)
        ]
        publish(tmp_path / "results", study, "small", runs)
    return tmp_path / "results"


def study(capsys, *argv):
    code = main([*(argv or ("publish",))])
    return code, *capsys.readouterr()


def test_stale_tables_are_named_and_made_again(results, capsys):
    edited = results / "padding" / "small" / "table.md"
    right = edited.read_bytes()
    edited.write_text("edited")
    (results / "precision" / "small" / "table.csv").unlink()
    code, _, err = study(capsys, "verify")
    assert code == 1
    assert "results/padding/small/table.md: not what its records say" in err
    assert "results/precision/small/table.csv: missing" in err
    assert "precision" not in study(capsys, "verify", "padding")[2], "one study alone"
    assert edited.read_text() == "edited"
    code, out, _ = study(capsys)
    assert code == 0 and "results/padding/small: wrote table.md" in out
    assert edited.read_bytes() == right
    assert study(capsys, "verify")[0] == 0


def spoil_record(results):
    (results / "padding" / "small" / RECORDS).write_text("{")


def lose_config(results):
    (results / "padding").rename(results / "gone")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (spoil_record, "results/padding/small/records.jsonl, line 1: damaged"),
        (lose_config, "results/gone/small: no study 'gone': there are"),
    ],
)
def test_what_is_wrong_costs_itself_alone(results, capsys, damage, message):
    damage(results)
    study(capsys, "publish", "--accept", "results")
    (folder,) = (path for path in results.glob("*/small") if path.parent.name != "precision")
    tables = {n: (folder / n).read_bytes() for n in TABLES}
    code, out, err = study(capsys)
    assert code == 1
    assert message in err and err.count("\n") == 1
    assert out == "results/precision/small: up to date\n"
    assert {n: (folder / n).read_bytes() for n in TABLES} == tables


def test_a_change_that_is_meant_is_accepted_by_name_and_said(results, capsys):
    first, second = sorted(results.glob(f"*/*/{RECORDS}"))
    first.write_text(first.read_text().replace("2.0", "3.0"))
    second.unlink()
    (results / "notes.md").write_text("by hand")
    code, out, _ = study(capsys, "publish", "--accept", str(first), "results/notes.md")
    assert code == 0
    assert out.splitlines() == [
        f"{first.relative_to(results.parent)}: changed",
        "results/notes.md: added",
    ]
    assert study(capsys, "publish", "--accept", "results")[1] == (
        f"{second.relative_to(results.parent)}: removed\n"
    )
    assert study(capsys, "publish", "--accept", "results")[1] == "nothing has changed\n"
    with pytest.raises(ValueError, match=r"elsewhere is not below results"):
        main(["publish", "--accept", "elsewhere"])
    with pytest.raises(ValueError, match=r"results/none: there is no evidence"):
        main(["publish", "--accept", "results/none"])


def test_nothing_published_names_what_is(results):
    there = "there are padding, precision;"
    with pytest.raises(ValueError, match=f"study warmup is not published below results: {there}"):
        main(["verify", "warmup"])
    with pytest.raises(ValueError, match=r"no study 'warmp'"):
        main(["verify", "warmp"])
    with pytest.raises(ValueError, match="no study is published below none: there are none"):
        main(["verify", "--results", "none"])
