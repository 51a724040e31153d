"""Each way of changing results by hand is found by the check, which names the file."""

import contextlib
import gzip
import json
import platform
import shutil
import threading
from pathlib import Path

import pytest

from normlab.commands.study import main
from normlab.records.packed import CURVES, RECORDS
from normlab.reports import manifest
from normlab.reports.manifest import MANIFEST, accept, problems, verify
from normlab.reports.published import publish
from tests.reports.tables import runs, study
from tests.test_architecture import ROOT

STUDY = "lm_norms/small"
HEALTH = "health/toy"
README = """# A page

<!-- normlab: table lm_norms/small columns=test/loss rows=ln;bn --><!-- /normlab -->

LN is at <!-- normlab: mean lm_norms/small test/loss row=ln --><!-- /normlab -->.
"""
LOG = """# Findings

BN is off by <!-- normlab: difference lm_norms/small test/loss row=bn --><!-- /normlab --> nats.
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A copy of a small study, of health sheets and of a report, with pages that have blocks."""
    root = tmp_path_factory.mktemp("checkout")
    results = root / "results"
    for place in (STUDY, HEALTH):
        shutil.copytree(ROOT / "results" / place, results / place)
    shutil.copytree(ROOT / "results" / "depth_gradients", results / "depth_gradients")
    (results / "bench").mkdir()
    shutil.copy(ROOT / "results" / "bench" / "data.json", results / "bench")
    (root / "README.md").write_text(README)
    (results / "LOG.md").write_text(LOG)
    accept(results, [results])
    assert main(["publish", "--results", str(results)]) == 0
    return root


@pytest.fixture
def copy(whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return Path("results")


def change_score(results):
    path = results / STUDY / RECORDS
    first, *rest = path.read_text().splitlines()
    record = json.loads(first)
    next(iter(record["scores"].values()))["value"] += 0.001
    path.write_text("\n".join([json.dumps(record), *rest]) + "\n")
    return path


def change_curve(results):
    path = results / STUDY / CURVES
    first, *rest = gzip.decompress(path.read_bytes()).splitlines()
    curve = json.loads(first)
    curve["rows"][0]["train/loss"] = 0.5
    path.write_bytes(gzip.compress(b"\n".join([json.dumps(curve).encode(), *rest])))
    return path


def lose(place):
    def change(results):
        (results / place).unlink()
        return results / place

    return change


def add(results):
    path = results / STUDY / "more.jsonl"
    shutil.copy(results / STUDY / RECORDS, path)
    return path


def swap_a_config(results):
    """Give a record another config and list it in the manifest, as if that were meant."""
    path = results / STUDY / RECORDS
    path.write_text(path.read_text().replace('"dropout": ', '"dropout": 0.25, "was": ', 1))
    accept(results, [path])
    return path


def edit(place, old, new):
    """Return a change of the first `old` of a file, `place` below the checkout."""

    def change(results):
        path = Path(place)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        return path

    return change


def forget(results):
    """Take the lines of records out of the manifest."""
    path = results / MANIFEST
    lines = [line for line in path.read_text().splitlines() if RECORDS not in line]
    path.write_text("\n".join(lines) + "\n")
    return results / STUDY / RECORDS


def garble(results):
    path = results / MANIFEST
    path.write_text(path.read_text().replace("  ", " ", 1))
    return path


CHANGES = {
    "a score": change_score,
    "a point of a curve": change_curve,
    "a config": swap_a_config,
    "the records deleted": lose(f"{STUDY}/{RECORDS}"),
    "a file added": add,
    "a table": edit(f"results/{STUDY}/table.md", "5.4", "5.3"),
    "a table deleted": lose(f"{STUDY}/table.csv"),
    "a page": edit(f"results/{STUDY}/report.html", "5.4", "5.3"),
    "a score of a run of the health sheets": edit(
        f"results/{HEALTH}/{RECORDS}", '"value": 1', '"value": 2'
    ),
    "a figure of a health sheet": edit(f"results/{HEALTH}/ln-pre.json", "0.", "1."),
    "a gradient": edit("results/depth_gradients/gradients.json", "0.", "1."),
    "a table of gradients": edit("results/depth_gradients/table.md", "0.506", "0.606"),
    "a report of a benchmark": edit("results/bench/data.json", "1", "2"),
    "a mean in the README": edit("README.md", "-->5.4", "-->5.3"),
    "a difference in the log": edit("results/LOG.md", "-->-0.1", "-->-0.2"),
    "the manifest": forget,
    "a line of the manifest": garble,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_by_hand_is_found_and_its_file_named(copy, capsys, change):
    path = change(copy)
    assert main(["verify"]) == 1
    assert path.name in capsys.readouterr().err


def test_what_nobody_changed_passes(copy, capsys):
    assert main(["verify"]) == 0
    assert capsys.readouterr().err == ""


def test_making_everything_again_does_not_bless_a_change(copy, capsys):
    path = change_curve(copy)
    assert main(["publish", "--results", str(copy)]) == 1
    assert path.name in capsys.readouterr().err
    assert main(["verify"]) == 1


@pytest.mark.parametrize("content", [None, "rubbish\n"])
def test_without_its_manifest_nothing_is_made_and_that_is_one_line(copy, capsys, content):
    (copy / MANIFEST).unlink()
    if content is not None:
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


def test_publishing_a_study_lists_what_it_wrote_and_blesses_nothing_else(tmp_path):
    folder = publish(tmp_path, study(), "smoke", runs({"ln": [30.0, 31.0], "bn": [20.0, 21.0]}))
    assert problems(tmp_path) == []
    stray = folder / "stray.json"
    stray.write_text("{}")
    other = tmp_path / "other.json"
    other.write_text("{}")
    publish(tmp_path, study(), "smoke", runs({"ln": [30.0, 32.0]}))
    assert problems(tmp_path) == [
        f"{stray}: not in {MANIFEST}",
        f"{other}: not in {MANIFEST}",
    ]


def test_the_committed_results_are_as_they_were_published():
    assert problems(ROOT / "results") == []


def test_of_two_studies_published_at_once_both_are_listed(tmp_path, monkeypatch):
    """What one has read before the other writes would be lost."""
    read, both = manifest.read, threading.Barrier(2)

    def slowly(root):
        listed = read(root)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.3)  # in vain where one waits for the other
        return listed

    monkeypatch.setattr(manifest, "read", slowly)
    files = [tmp_path / name / "a.json" for name in ("one", "two")]
    for file in files:
        file.parent.mkdir()
        file.write_text("{}")
    threads = [threading.Thread(target=manifest.accept, args=(tmp_path, [f])) for f in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert manifest.problems(tmp_path) == []


def test_what_is_lost_or_half_written_is_put_right_by_the_next_report(copy):
    gone = f"{platform.node()}.{2**30}"  # no process has this number
    left = copy / STUDY / f".records.jsonl.{gone}-0.partial"
    left.write_text("half")
    (copy / STUDY / "table.csv").unlink()
    found = verify(copy, "lm_norms", write=True)
    assert found.wrong == [] and found.said == [f"{copy / STUDY}: wrote table.csv"]
    assert not left.exists()
