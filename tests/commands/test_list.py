"""`normlab list` shows the options, keys and runs that exist."""

import io
import json
import os
from contextlib import redirect_stdout

import pytest
from msgspec.structs import replace

from normlab.commands.list import main
from normlab.config import folders, registry
from normlab.records.record import Score
from normlab.records.store import RunStore
from tests.records.examples import config, record


@pytest.fixture
def printed(capsys, monkeypatch):
    """Return a function that runs `list` and returns the printed text, or the JSON rows."""
    monkeypatch.setenv("COLUMNS", "10000")

    def listed(*argv, status=0):
        assert main([*argv]) == status
        out = capsys.readouterr().out
        return json.loads(out) if "--json" in argv else out.splitlines()

    return listed


def test_every_group_and_option_is_listed_with_its_description(printed):
    rows = [line.split() for line in printed()]
    for group in folders.groups():
        assert [group, *registry.option_names(group)] in rows
        for option in registry.options(group):
            assert option.description, f"{option.path} opens with no comment that says what it is"
    for group in ("norm", "study", "task"):
        listed, out = printed(group, "--json"), printed(f"{group}s".replace("ys", "ies"))
        assert sorted(item[group] for item in listed) == registry.option_names(group)
        assert all(any(item["what it is"] in line for line in out) for item in listed)


class Terminal(io.StringIO):
    """Standard output that claims to be a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize("kind", ["keys", "norms", "placements", "models", "studies", "runs"])
def test_a_terminal_gets_one_line_per_entry_and_a_pipe_the_full_text(
    kind, printed, monkeypatch, tmp_path
):
    store = RunStore(tmp_path / "runs")
    store.write(record(norm="bn"), store.run_dir(config(norm="bn")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    rows, piped, shown = printed(kind, "--json"), printed(kind), Terminal()
    first = {str(next(iter(row.values()))) for row in rows}
    with redirect_stdout(shown):
        assert main([kind]) == 0
    for lines in (piped, shown.getvalue().splitlines()):
        assert {line.split("  ")[0] for line in lines[2 : 2 + len(rows)]} == first
    texts = [str(text) for row in rows for text in row.values() if isinstance(text, str)]
    assert all(any(text in line for line in piped) for text in texts)
    assert max(map(len, shown.getvalue().splitlines())) <= 80
    assert shown.getvalue().split("\n")[0].split() == piped[0].split(), "no column is left out"


def test_norms_are_sorted_by_the_axes_they_pool_over(printed, monkeypatch, tmp_path):
    for name, text in {
        "mine": "# normlab train norm=mine\n# A norm of nobody. Says no axis.\n",
        "newer": "# Newer norm (Roe et al. 1998).\n_pools_over_: batch\n",
        "new": "# New norm.\n_pools_over_: position and feature\n",
    }.items():
        (tmp_path / "norm").mkdir(exist_ok=True)
        (tmp_path / "norm" / f"{name}.yaml").write_text(text)
    monkeypatch.setattr(folders, "CONFIG_DIR", tmp_path)
    found = [(row["norm"], row["pools over"]) for row in printed("norm", "--json")]
    both = "position and feature"
    assert found == [("mine", "-"), ("newer", "batch"), ("new", both)]


def test_an_unknown_kind_of_list_gets_a_suggestion():
    with pytest.raises(
        ValueError,
        match=r"'nroms' is not a group or list\. Did you mean norm\? `normlab list` shows all",
    ):
        main(["nroms"])


def test_a_folder_of_runs_is_refused_for_a_list_of_options():
    with pytest.raises(ValueError, match="--runs-dir is for normlab list runs; omit it"):
        main(["norms", "--runs-dir", "runs"])


def test_runs_are_listed_with_outcome_or_progress(tmp_path, printed):
    place = ("--runs-dir", str(tmp_path))
    assert "has no runs" in printed("runs", *place)[-1]
    store = RunStore(tmp_path)
    ended = record(seed=1, bleu=30.0, status="diverged", norm="bn")
    scores = {"test/batch_size_1/bleu": Score(9.0, True, 1), **ended.scores}
    store.write(replace(ended, scores=scores), store.run_dir(ended.config))
    going = store.run_dir(config(seed=2))
    going.mkdir(parents=True)
    (going / "config.yaml").touch()
    known = [f"{store.run_dir(ended.config)}", "diverged", "100", "test/bleu", "30"]
    lines = [line.split() for line in printed("runs", *place)]
    assert known in lines and [str(going), "no", "record", "yet"] in lines
    now = {"phase": "training", "done": 1200, "total": 3000, "loss": 2.34567, "left": 600}
    now |= {"spent": None, "trained": False}
    (going / "progress.json").write_text(json.dumps(now))
    *_, row = printed("runs", "--json", *place)
    assert [*row.values()] == [
        *(str(going), "training", "1,200 of 3,000", "loss 2.346, about 10 min left")
    ]
    os.utime(going / "progress.json", (0, 0))
    *_, row = printed("runs", "--json", *place)
    assert (row["outcome"], row["score"]) == ("stopped in training", "loss 2.346")
