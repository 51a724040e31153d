"""Tables and pages follow from the evidence, and every manual change is found and reported."""

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from normlab.blocks import regenerated
from normlab.commands import study as command
from normlab.commands.study import main
from normlab.errors import UserError
from normlab.publishing.publish import publish
from normlab.publishing.published import read
from normlab.records.manifest import BLOCK, MANIFEST, accept, problems
from normlab.records.packed import CURVES, RECORDS
from normlab.studies.load import load_study
from tests.reports.handmade import made, run, runs, study
from tests.test_architecture import ROOT

STUDY = "lm_norms/small"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the root of a checkout with a small study and a table written by a script."""
    root = tmp_path_factory.mktemp("checkout")
    results = root / "results"
    for place in (STUDY, "depth_gradients"):
        shutil.copytree(ROOT / "results" / place, results / place)
    accept(results, [results])
    assert main(["publish", "--results", str(results)]) == 0
    return root


@pytest.fixture
def copy(whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    monkeypatch.setattr(command, "PUBLISH_TO", Path("results"))
    return Path("results")


def put(place):
    """Return a function that adds a file at `place` in the checkout."""

    def add_file(results):
        path = Path(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("| norm | test/bleu |\n")
        return path

    return add_file


def change_curve(results):
    path = results / STUDY / CURVES
    first, *rest = gzip.decompress(path.read_bytes()).splitlines()
    curve = json.loads(first)
    curve["rows"][0]["train/loss"] = 0.5
    path.write_bytes(gzip.compress(b"\n".join([json.dumps(curve).encode(), *rest])))
    return path


def add(results):
    path = results / STUDY / "more.jsonl"
    shutil.copy(results / STUDY / RECORDS, path)
    return path


def edit(place, old, new):
    """Return a function that changes the first `old` in the file at `place` in the checkout."""

    def change(results):
        path = Path(place)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        return path

    return change


CHANGES = {
    "a score": edit(f"results/{STUDY}/{RECORDS}", '"value": 5', '"value": 6'),
    "a point of a curve": change_curve,
    "a file added": add,
    "a table without records": put("results/fake/small/table.md"),
    "the page of a card next to the records of a study": put(f"results/{STUDY}/card.html"),
    "a page": edit(f"results/{STUDY}/report.html", "5.4", "5.3"),
    "a table written by a script": edit("results/depth_gradients/table.md", "0.506", "0.606"),
    "a line of the manifest": edit(f"results/{MANIFEST}", "  ", " "),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_manual_change_is_found_and_the_error_names_its_file(copy, capsys, change):
    path = change(copy)
    assert main(["verify"]) == 1
    assert path.name in capsys.readouterr().err
    if change is change_curve:
        assert main(["publish", "--results", str(copy)]) == 1, "publish does not accept a change"
        assert path.name in capsys.readouterr().err


def test_an_edited_number_of_a_block_is_found(copy, capsys):
    page, source = copy / "README.md", f"mean {STUDY} valid/loss row=ln at=placement=pre"
    page.write_text(f"{BLOCK}{source} --><!-- /normlab -->")
    page.write_text(regenerated(page, copy))
    capsys.readouterr()
    assert main(["verify"]) == 0 and f"{page}: up to date" in capsys.readouterr().out
    page.write_text(page.read_text().replace("+-", "9 +-"))
    assert main(["verify"]) == 1
    assert f"{page}: the block `{source}` does not match" in capsys.readouterr().err
    page.write_text(page.read_text().replace("<!-- /", "<!-- "))
    assert main(["verify"]) == 1 and "a block without its end" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "rubbish\n"])
def test_without_a_manifest_nothing_is_published_and_the_error_says_to_restore_it(
    copy, capsys, content
):
    (copy / MANIFEST).write_text(content)
    record = copy / STUDY / RECORDS
    record.write_text(record.read_text().replace('"value": 2', '"value": 1', 1))
    table = copy / STUDY / "table.md"
    before = table.read_bytes()
    for argv in (["publish", "lm_norms"], ["publish"], ["verify"]):
        assert main([*argv, "--results", str(copy)]) == 1
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 2 and f"{copy / MANIFEST}" in said[0] and "restore" in said[1]
    assert table.read_bytes() == before


def test_a_record_from_uncommitted_code_does_not_replace_one_from_committed_code(copy):
    before = {path: path.read_bytes() for path in copy.rglob("[!.]*") if path.is_file()}
    first = next(each for each in read(copy / STUDY) if each.record)
    scores = {name: structs.replace(one, value=99.0) for name, one in first.record.scores.items()}
    environment = {**first.record.environment, "commit": "f" * 40, "dirty": True}
    record = structs.replace(first.record, scores=scores, environment=environment)
    commit = first.record.environment["commit"][:10]
    said = (
        rf"{STUDY}:{first.key.name}@seed{first.key.seed}: the published run is from commit "
        rf"{commit}, the new run from commit f{{10}} with changes"
    )
    with pytest.raises(UserError, match=said):
        publish(copy, load_study("lm_norms"), "small", [replace(first, record=record)])
    assert {path: path.read_bytes() for path in copy.rglob("[!.]*") if path.is_file()} == before
    assert main(["verify"]) == 0


def test_publishing_a_study_does_not_accept_other_new_files(tmp_path):
    folder = publish(tmp_path, study(), "smoke", runs({"ln": [30.0, 31.0], "bn": [20.0, 21.0]}))
    stray = folder / "stray.json"
    stray.write_text("{}")
    publish(tmp_path, study(), "smoke", runs({"ln": [30.0, 31.0, 32.0]}))
    assert problems(tmp_path) == {stray: f"{stray}: not in {MANIFEST}"}


def test_the_committed_results_match_their_manifest():
    assert problems(ROOT / "results") == {}


# Studies by hand ----------------------------------------------------------------------------------


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "PUBLISH_TO", Path("results"))
    for name in ("padding", "precision"):
        kept = [run(made("ln", seed, {"test/bleu": 1.0 + seed}), "ln", seed) for seed in (1, 2)]
        publish(tmp_path / "results", load_study(name), "small", kept)
    return tmp_path / "results"


def test_the_literature_page_is_missing_if_a_published_study_has_numbers_of_others(results, capsys):
    assert said(capsys, "verify")[0] == 0 and not (results / "literature.md").exists()
    record = made("ln", 1, {"test/loss": 1.88})
    publish(results, load_study("published_nanogpt"), "small", [run(record, "ln", 1)])
    assert said(capsys, "verify")[0] == 0
    (results / "literature.md").unlink()
    code, _, err = said(capsys, "verify")
    assert code == 1 and "results/literature.md: missing; write it with normlab study pub" in err
    assert said(capsys)[0] == 0 and "published_nanogpt" in (results / "literature.md").read_text()


def said(capsys, *argv):
    code = main([*(argv or ("publish",))])
    return code, *capsys.readouterr()


def test_verify_reports_stale_and_missing_tables(results, capsys):
    edited = results / "padding" / "small" / "table.md"
    edited.write_text("edited")
    (results / "precision" / "small" / "table.csv").unlink()
    code, _, err = said(capsys, "verify")
    assert code == 1
    assert "results/padding/small/table.md: does not match its records" in err
    assert "results/precision/small/table.csv: missing" in err
    assert "precision" not in said(capsys, "verify", "padding")[2], (
        "only the named study is verified"
    )
    assert edited.read_text() == "edited"


def test_publish_rewrites_stale_tables(results, capsys):
    edited = results / "padding" / "small" / "table.md"
    right = edited.read_bytes()
    edited.write_text("edited")
    code, out, _ = said(capsys)
    assert code == 0 and "results/padding/small: wrote table.md" in out
    assert edited.read_bytes() == right
    assert said(capsys, "verify")[0] == 0


def test_the_literature_page_is_not_rewritten_from_changed_records(results, capsys):
    page = results / "literature.md"
    page.write_text("before")

    def add(name, *seeds):
        scored = [made("ln", seed, {"test/loss": 1.87 + seed / 100}) for seed in seeds]
        kept = [run(record, "ln", record.seed) for record in scored]
        return publish(results, load_study(name), "small", kept) / RECORDS

    changed = add("published_nanogpt", 1, 2)
    before = page.read_text()
    assert "published_nanogpt" in before
    changed.write_text(changed.read_text().replace("1.88", "1.68"))
    assert said(capsys)[0] == 1 and page.read_text() == before
    add("published_dyt_data", 1)
    assert page.read_text() == before
    assert said(capsys, "publish", "--accept", str(changed))[0] == 0
    assert said(capsys)[0] == 0 and page.read_text() != before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda padding: (padding / "small" / RECORDS).write_text("{"),
            "results/padding/small/records.jsonl, line 1 is damaged",
        ),
        (
            lambda padding: padding.rename(padding.with_name("gone")),
            "no study 'gone'; `normlab list studies` shows all",
        ),
    ],
)
def test_one_damaged_study_does_not_affect_the_others(results, capsys, damage, message):
    damage(results / "padding")
    said(capsys, "publish", "--accept", "results")
    (folder,) = (path for path in results.glob("*/small") if path.parent.name != "precision")
    tables = {path: path.read_bytes() for path in folder.glob("table.*")}
    code, out, err = said(capsys)
    assert code == 1
    assert message in err and err.count("\n") == 1
    assert out == "results/precision/small: up to date\n"
    assert {path: path.read_bytes() for path in folder.glob("table.*")} == tables


def test_accept_lists_the_manual_changes_that_it_accepts(results, capsys):
    first, second = sorted(results.glob(f"*/*/{RECORDS}"))
    first.write_text(first.read_text().replace("2.0", "3.0"))
    second.unlink()
    (results / "notes.md").write_text("by hand")
    code, out, _ = said(capsys, "publish", "--accept", str(first), "--accept", "results/notes.md")
    assert code == 0
    assert out.splitlines() == [
        f"{first.relative_to(results.parent)}: changed",
        "results/notes.md: added",
    ]
    removed = second.relative_to(results.parent)
    left = ("report.html", "table.csv", "table.md", "table.tex")  # generated from no records now
    assert said(capsys, "publish", "--accept", "results")[1].splitlines() == [
        f"{removed}: removed",
        *(f"{removed.with_name(name)}: added" for name in left),
    ]
    assert said(capsys, "publish", "--accept", "results")[1] == "nothing has changed\n"
    with pytest.raises(ValueError, match=r"elsewhere is not in results"):
        main(["publish", "--accept", "elsewhere"])
    with pytest.raises(ValueError, match=r"results/none has no evidence"):
        main(["publish", "--accept", "results/none"])


def test_the_error_for_an_unpublished_study_lists_the_published_ones(results):
    there = r"\(published: padding, precision\);"
    with pytest.raises(ValueError, match=f"study warmup is not published in results {there}"):
        main(["verify", "warmup"])
    with pytest.raises(ValueError, match=r"no study 'warmp'"):
        main(["verify", "warmp"])
    with pytest.raises(ValueError, match=r"no study is published in none .published: none."):
        main(["verify", "--results", "none"])
