"""Made-up runs are like real ones, and commands read each of them once and nothing heavy."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from normlab.bench import records as bench
from normlab.commands.bench.records import main
from normlab.records.fingerprint import fingerprint
from normlab.records.store import RunStore
from normlab.registry import CONFIG_DIR

RESULTS = CONFIG_DIR.parent / "results"
COUNT = 130

# Runs a command and prints how often which file was opened, and which modules were loaded.
WATCH = """
import contextlib, io, json, sys
from collections import Counter
opened = Counter()
def note(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        opened[arguments[0]] += 1
sys.addaudithook(note)
from normlab.cli import main
with contextlib.redirect_stdout(io.StringIO()) as out:
    code = main(sys.argv[1:])
print(json.dumps({"code": code, "opened": opened, "lines": out.getvalue().count("\\n"),
                  "modules": list(sys.modules)}))
"""


@pytest.fixture(scope="module")
def like():
    return bench.examples(RESULTS)


@pytest.fixture(scope="module")
def many(tmp_path_factory, like):
    root = tmp_path_factory.mktemp("many") / "runs"
    bench.write_runs(root, bench.made_up(like, count=COUNT))
    return root


def watched(*argv):
    done = subprocess.run([sys.executable, "-c", WATCH, *argv], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_they_are_runs_of_their_own_with_their_own_fingerprint(many, like):
    found = RunStore(many).entries()
    assert len(found) == COUNT
    for folder, record in found:
        assert folder.parent.name.endswith(f"-{fingerprint(record.config)}")
        assert folder.name == f"seed{record.seed}" and record.run_id.startswith(folder.parent.name)
    seeds = Counter(record.fingerprint for _, record in found)
    assert sorted(set(seeds.values())) == [1, 3]  # three each, and the last cut short
    bleu = {r.scores["test/bleu"].value for _, r in found if "test/bleu" in r.scores}
    assert len(bleu) > 10
    known = {name for base in like for name in base.scores}
    assert {name for _, record in found for name in record.scores} <= known


def test_the_same_runs_are_made_each_time(like):
    first, second = (list(bench.made_up(like, count=20)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    "argv",
    [
        ["ls", "runs"],
        ["ls", "runs", "--json"],
        ["compare"],
        ["compare", "--where", "norm=bn"],
        ["claims"],
    ],
)
def test_each_record_is_opened_once_and_no_other_file_of_a_run(many, argv):
    found = watched(*argv, "--runs-dir", str(many))
    below = {path: n for path, n in found["opened"].items() if path.startswith(str(many))}
    assert found["code"] == 0 and found["lines"] > 10
    assert set(below.values()) == {1}
    assert set(below) == {str(path) for path in many.rglob("record.json")}
    assert not {"torch", "datasets", "hydra", "wandb"} & set(found["modules"])


def test_the_command_measures_what_people_type(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    report = tmp_path / "records.json"
    assert main(["--runs", "12", "--rounds", "1", "--json", str(report)]) == 0
    out = capsys.readouterr().out
    measured = json.loads(report.read_text())
    assert measured["runs"] == 12
    commands = [item["command"] for item in measured["commands"]]
    assert commands[0] == "ls runs --runs-dir FOLDER/runs"
    assert any(command.startswith("report ") for command in commands)
    assert all(f"normlab {command}" in out for command in commands)
    assert all(item["seconds"]["median"] > 0 for item in measured["commands"])


def test_nothing_to_make_runs_like_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"no finished run below .*: name other results"):
        bench.examples(tmp_path)
