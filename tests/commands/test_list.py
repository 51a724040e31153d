"""Lists show what the folders hold."""

import json

import pytest
from msgspec.structs import replace

from normlab.commands.list import main
from normlab.config import registry
from normlab.records.record import Score
from normlab.records.store import RunStore
from tests.records.examples import config, record


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "10000")


def printed(capsys, *argv):
    assert main(list(argv)) == 0
    return capsys.readouterr().out


def test_every_group_and_option_is_listed(capsys):
    out = printed(capsys)
    for group in registry.groups():
        line = next(line for line in out.splitlines() if line.split()[:1] == [group])
        assert line.split()[1:] == registry.option_names(group)
    assert json.loads(printed(capsys, "--json")) == {
        group: registry.option_names(group) for group in registry.groups()
    }


def test_every_option_of_a_group_says_what_it_is(capsys):
    for group in registry.groups():
        for option in registry.options(group):
            assert option.description, f"{option.path} opens with no comment that says what it is"
    for group in ("norm", "study"):
        listed, out = json.loads(printed(capsys, group, "--json")), printed(capsys, group)
        assert [item["name"] for item in listed] == registry.option_names(group)
        assert all(item["description"] in out for item in listed)


def test_norms_are_listed_by_family_with_their_papers(capsys, monkeypatch, tmp_path):
    for name, text in {
        "mine": "# normlab train norm=mine\n# A norm of nobody. Says no axis.\n",
        "newest": "# Newest norm (Doe 1999): batch norm. Pools over batch and time.\n",
        "newer": "# Newer norm (Roe et al. 1998). Pools over batch.\n",
        "new": "# New norm. Pools over position and feature.\n",
    }.items():
        (tmp_path / "norm").mkdir(exist_ok=True)
        (tmp_path / "norm" / f"{name}.yaml").write_text(text)
    monkeypatch.setattr(registry, "CONFIG_DIR", tmp_path)
    out = printed(capsys, "norm").splitlines()
    heads = [i for i, line in enumerate(out) if "what it is" in line]
    assert [out[i].split("  ")[0] for i in heads] == ["over the batch", "by sequence", "others"]
    rows = [out[i + 2].split() for i in heads]
    assert [row[0] for row in rows] == ["newer", "new", "mine"]
    assert out[heads[0] + 3].split()[0] == "newest"


def test_an_unknown_kind_names_the_allowed_ones():
    with pytest.raises(ValueError, match=r"'nroms'; did you mean norms\? .*placements.*, runs"):
        main(["nroms"])


def test_names_are_singular_or_plural(capsys):
    for one, other in (("norm", "norms"), ("study", "studies")):
        assert printed(capsys, one) == printed(capsys, other)


def test_a_run_that_trains_shows_its_progress(tmp_path, capsys):
    folder = RunStore(tmp_path).run_dir(config(seed=2))
    folder.mkdir(parents=True)
    (folder / "config.yaml").touch()
    now = {"phase": "training", "done": 1200, "total": 3000, "loss": 2.34567, "left": 600}
    (folder / "progress.json").write_text(json.dumps(now))
    line = next(x for x in printed(capsys, "runs", "--runs-dir", str(tmp_path)).splitlines()[2:])
    assert line.split(str(folder))[1].split() == [
        *("training", "1,200", "of", "3,000", "loss", "2.346,", "10", "min", "left"),
    ]
    listed = json.loads(printed(capsys, "runs", "--json", "--runs-dir", str(tmp_path)))
    assert listed == [{"path": str(folder), "status": "no record", "progress": now}]
    (folder / "progress.json").write_text("[")
    assert "no record yet" in printed(capsys, "runs", "--runs-dir", str(tmp_path))


def test_runs_with_and_without_records(tmp_path, capsys):
    store = RunStore(tmp_path)
    ended = record(seed=1, bleu=float("nan"), status="diverged", norm="bn")
    place, going = store.run_dir(ended.config), store.run_dir(config(seed=2))
    store.write(ended, place)
    going.mkdir(parents=True)
    (going / "config.yaml").touch()
    out = printed(capsys, "runs", "--runs-dir", str(tmp_path))
    assert [line.split() for line in out.splitlines() if str(tmp_path) in line] == [
        [str(place), "diverged", "100", "test/bleu", "nan"],
        [str(going), "no", "record", "yet"],
    ]
    one, other = json.loads(printed(capsys, "runs", "--json", "--runs-dir", str(tmp_path)))
    assert (one["path"], one["norm"], one["placement"]) == (str(place), "bn", "pre")
    assert (one["status"], one["step"], one["scores"]) == ("diverged", 100, {"test/bleu": "nan"})
    assert other == {"path": str(going), "status": "no record"}


def test_damaged_runs_are_told(tmp_path, capsys):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "record.json").write_text("{")
    assert main(["runs", "--runs-dir", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert str(tmp_path / "a" / "record.json") in err and "start the run again" in err
    assert [line.split() for line in out.splitlines()][2] == [str(tmp_path / "a"), "damaged"]
    assert main(["runs", "--json", "--runs-dir", str(tmp_path)]) == 1
    listed = json.loads(capsys.readouterr().out)
    assert listed == [{"path": str(tmp_path / "a"), "status": "damaged"}]


def test_the_score_is_one_of_the_whole_test(tmp_path, capsys):
    assert "no runs below" in printed(capsys, "runs", "--runs-dir", str(tmp_path / "none"))
    kept = record(bleu=30.0)
    scores = {"test/batch_size_1/bleu": Score(9.0, True, 1), **kept.scores}
    store = RunStore(tmp_path)
    store.write(replace(kept, scores=scores), store.run_dir(kept.config))
    assert "test/bleu 30.00" in printed(capsys, "runs", "--runs-dir", str(tmp_path))
