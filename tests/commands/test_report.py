"""`normlab report`: a sweep becomes a grid, and a damaged run does not affect the others."""

import json
import re

import pytest
import yaml

from normlab.commands.report import main
from normlab.records.packed import Key, write_pack
from normlab.records.store import RunStore
from tests.html_text import Text
from tests.reports.handmade import kept_run, made, run_rows


def report(capsys, *argv):
    code = main([*argv])
    return code, *capsys.readouterr()


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Write runs of two norms at two batch sizes; one bn run at batch size 8 is unfinished."""
    monkeypatch.chdir(tmp_path)
    store = RunStore("runs")
    for norm in ("bn", "ln"):
        for size in (8, 32):
            for seed in (1, 2):
                level = size / 10 + seed / 4 + (seed == 2 and norm == "bn")
                scores = {"test/bleu": level, "valid/loss": level, "test/length_ratio": 1.0}
                changed = {"batch_size": size, "task": {"batch_size": size}}
                record = made(norm, seed, scores, **changed)
                folder = kept_run(store.run_dir(record.config), run_rows(level))
                if (norm, size, seed) == ("bn", 8, 2):
                    (folder / "config.yaml").write_text(yaml.safe_dump(record.config))
                else:
                    store.write(record, folder)
    return tmp_path / "runs"


def results_of(folder):
    return Text((folder / "report.html").read_text()).rows("results")


def test_the_page_of_a_sweep_shows_scores_and_an_unfinished_run_is_reported(runs, capsys):
    code, out, err = report(capsys, "--out", "paper")
    assert (code, out) == (0, "paper/report.html\n")
    assert "/seed2: not ended" in err and err.count("\n") == 1
    head, *_ = results_of(runs.parent / "paper")
    titles = [title.replace("/ ", "/").split()[0] for title in head]
    assert titles == ["setting", "BLEU", "validation", "stability"]


def test_rows_of_a_sweep_are_compared_with_the_baseline_at_each_point(runs, capsys):
    report(capsys, "--out", "paper")
    _, *rows = results_of(runs.parent / "paper")
    assert [row[0] for row in rows] == ["batch size 8", "ln", "bn", "batch size 32", "ln", "bn"]
    assert rows[1][1] == "1.18 \u00b1 0.18" and rows[2][1] == "1.05"
    assert rows[2][3].startswith("finished 1/1, 1 not ended")
    # Seeds differ by 0 and 1: mean 0.5, deviation 0.707, half an interval 12.706 / 2.
    assert "+0.50 [-5.85,\u00a0+6.85], p\u00a0=\u00a00.500" in rows[5][1]


def test_the_page_of_a_sweep_links_every_record_and_shows_no_scale(runs, capsys):
    report(capsys, "--out", "paper")
    text = (runs.parent / "paper" / "report.html").read_text()
    assert "<dt>scale" not in text, "no scale was chosen"
    page = Text(text)
    links = [link for link in page.links if link.endswith("record.json")]
    assert len(links) == 7 and all((runs.parent / "paper" / link).is_file() for link in links)


def test_a_packed_row_has_a_page_without_control_characters(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    records = {Key("ln", "", seed): made("ln", seed, {"test/bleu": 1.0}) for seed in (1, 2)}
    write_pack(tmp_path / "a\u202eb", records)
    assert report(capsys, "a\u202eb:ln") == (0, "report/report.html\n", "")
    text = (tmp_path / "report" / "report.html").read_text()
    assert len(Text(text).rows("runs")) == 3 and "\u202e" not in text and r"a\u202eb" in text


def test_an_experiment_as_baseline_gives_one_row_per_experiment(runs, capsys):
    wanted = ("--baseline", "bn, batch size 32", "--columns", "valid/loss")
    assert report(capsys, str(runs), *wanted)[0] == 0
    names = [row[0] for row in results_of(runs.parent / "report")[1:]]
    assert names[0] == "bn, batch size 32" and len(names) == 4
    with pytest.raises(ValueError, match=r"--baseline gn: no such row; available: bn; ln"):
        main(["runs", "--baseline", "gn"])
    with pytest.raises(ValueError, match=r"no run that can be read in report"):
        main(["report"])


@pytest.fixture
def two_recipes(runs, capsys, monkeypatch):
    """Return the page of runs of two recipes, and the paths of its figures."""
    monkeypatch.setattr("normlab.reports.report.write", lambda figure, path, title: ())
    store = RunStore("runs")
    for norm in ("bn", "ln"):
        for size in (32, 64):
            changed = {"batch_size": size, "task": {"batch_size": size}, "budget": {"steps": 999}}
            record = made(norm, 1, {"test/bleu": 90.0, "valid/loss": 9.0}, **changed)
            store.write(record, kept_run(store.run_dir(record.config), run_rows(9.0)))
    code, out, _ = report(capsys, "runs", "--latex", "--figures", "svg")
    assert code == 0
    return (runs.parent / "report" / "report.html").read_text(), out.splitlines()


def test_each_recipe_has_its_own_table_and_figure(two_recipes, runs):
    page, paths = two_recipes
    ids = [attributes["id"] for _, attributes in Text(page).tags if "id" in attributes]
    assert len(ids) == len({*ids}) and page.count('class="answer"') == 2
    assert page.count('<table class="results">') == page.count('<table class="runs">') == 2
    assert "999 steps" in Text(page).text
    assert len([path for path in paths if path.endswith("bleu_by_batch_size.svg")]) == 2
    labels = re.findall(r"\\label\{.*\}", (runs.parent / "report" / "table.tex").read_text())
    assert len(labels) == len({*labels}) == 2


def test_runs_of_different_recipes_are_not_averaged_into_one_curve(two_recipes):
    page, _ = two_recipes
    panels = json.loads(page.partition('id="charts">')[2].partition("</script>")[0])["panels"]
    losses = [each for each in panels if each["id"].endswith("training-step-train-loss")]
    points = [{line["at"] for line in each["series"]} for each in losses]
    assert {"batch_size=8", "batch_size=32"} in points and len(points) == 2
    assert {"batch_size=32", "batch_size=64"} in points


def test_damaged_runs_are_reported_and_the_rest_is_shown(runs, capsys):
    first, second = sorted(runs.glob("*/seed1/record.json"))[:2]
    first.write_text("{")
    (second.parent / "metrics.jsonl").write_text("{}\n")
    code, _, err = report(capsys, "runs")
    assert code == 1 and err.count("\n") == 3
    assert (
        f"{first.relative_to(runs.parent)} is a damaged record" in err
        and "metrics.jsonl, line 1 is not" in err
    )
    rows = results_of(runs.parent / "report")
    assert len(rows) == 7 and "not be read" in (runs.parent / "report" / "report.html").read_text()


def test_figures_are_drawn_next_to_the_page(runs, capsys, monkeypatch):
    monkeypatch.setattr("normlab.reports.report.write", lambda figure, path, title: ())
    code, out, err = report(capsys, "runs", "--figures", "svg")
    scores = [f"report/{name}_by_batch_size.svg" for name in ("bleu", "validation_loss")]
    names = [*scores, "report/loss.svg", "report/over_training.svg"]
    assert code == 0 and out.splitlines() == ["report/report.html", *names]
    assert (
        "figures gradient_by_layer, tid_by_layer, residual_by_layer" in err
        and err.count("skipped") == 1
    )


def test_figures_are_drawn_only_for_the_chosen_columns(runs, capsys, monkeypatch):
    monkeypatch.setattr("normlab.reports.report.write", lambda figure, path, title: ())
    code, out, _ = report(capsys, "runs", "--columns", "test/bleu", "--figures", "svg")
    assert code == 0
    assert out.splitlines() == ["report/report.html", "report/bleu_by_batch_size.svg"]
    one_size = ("--where", "batch_size=8", "--columns", "valid/loss", "--figures", "svg")
    assert report(capsys, "runs", *one_size)[1].splitlines()[1:] == [
        "report/validation_loss_over_training.svg"
    ]


def test_a_latex_table_with_renamed_columns_is_written_next_to_the_page(runs, capsys):
    columns = ("--columns", "valid/loss", "test/bleu", "--names", "valid/loss=Loss", "bn=BN")
    code, out, _ = report(capsys, "runs", *columns, "--latex", "--intervals", "--figures", "svg")
    assert code == 0 and out.splitlines()[:2] == ["report/report.html", "report/table.tex"]
    text = (runs.parent / "report" / "table.tex").read_text()
    assert r" & Loss & BLEU \\" in text and r"\textit{batch size 8}" in text
    assert text.count(r"\begin") == text.count(r"\end") == 2
    names = [row[0] for row in results_of(runs.parent / "report")[1:4]]
    assert "Layer norm & " in text and names == ["batch size 8", "ln", "BN"]
    drawn = (runs.parent / "report" / "validation_loss_by_batch_size.svg").read_text()
    assert all(f"<!-- {each} -->" in drawn for each in ("Loss", "BN", "Layer norm"))


def test_stars_without_latex_and_a_name_among_the_columns_are_errors(runs):
    with pytest.raises(ValueError, match="--stars needs --latex"):
        main(["runs", "--stars"])
    with pytest.raises(ValueError, match="sets a name; use --names test/bleu=B"):
        main(["runs", "--columns", "test/bleu=B"])


def test_watch_rewrites_the_page_and_stops_its_reloading_at_the_end(runs, capsys, monkeypatch):
    pages = []

    def sleep(seconds):
        pages.append((runs.parent / "report" / "report.html").read_text())
        if len(pages) == 1:
            kept_run(next(runs.glob("*/seed1")), run_rows(9.0, 50))
        elif len(pages) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("normlab.commands.report.time.sleep", sleep)
    assert report(capsys, "runs", "--watch")[0] == 0
    assert all('http-equiv="refresh"' in page for page in pages)
    assert pages[0] != pages[1] == pages[2]
    assert 'http-equiv="refresh"' not in (runs.parent / "report" / "report.html").read_text()
