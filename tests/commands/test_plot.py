import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from normlab.cli import main as normlab
from normlab.commands.plot import main
from normlab.records.record import Outcome
from normlab.records.store import RunStore
from tests.records.examples import record
from tests.reports.curves import PROBES, by_layer, loss_rows

ROOT = Path(__file__).resolve().parents[2]
FIGURES = by_layer("stability/gradients/norm")


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """One experiment of two seeds with the gradients by layer, and one without."""
    monkeypatch.chdir(tmp_path)
    store = RunStore("runs")
    for seed in (1, 2):
        keep(store, seed=seed, norm="bn", stability=FIGURES, observe={"probe": PROBES})
    keep(store, norm="ln")
    return store


def keep(store, *, rows=None, stability=None, ended=True, **changes):
    made = replace(record(**changes), outcome=Outcome("finished", 30), stability=stability or {})
    folder = store.run_dir(made.config)
    folder.mkdir(parents=True)
    if ended:
        store.write(made, folder)
    lines = loss_rows({10: 5.0, 20: 4.0, 30: 3.0}) if rows is None else rows
    text = "".join(json.dumps(row) + "\n" for row in lines)
    (folder / "metrics.jsonl").write_text(text)
    (folder / "config.yaml").write_text(yaml.safe_dump(made.config))
    return folder


def plot(capsys, *argv):
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out.split(), err.splitlines()


def test_all_runs_are_drawn_for_light_and_dark_and_the_paths_printed(runs, capsys):
    code, paths, err = plot(capsys)
    assert code == 0
    assert paths == [
        "figures/loss.svg",
        "figures/loss-dark.svg",
        "figures/gradient_by_layer.svg",
        "figures/gradient_by_layer-dark.svg",
    ]
    assert sorted(map(str, Path("figures").iterdir())) == sorted(paths)
    assert all(Path(path).read_bytes().startswith(b"<?xml") for path in paths)
    lacks = "ln (trained without the probe gradients; probe=full has it)"
    assert err[0] == f"normlab: gradient_by_layer is without {lacks}"
    assert err[1].startswith("normlab: tid_by_layer is left out: bn (the probe tid found nothing")
    assert "ln (trained without the probe tid; probe=full has it)" in err[1]
    assert [line.split()[1] for line in err[2:]] == ["residual_by_layer", "over_training"]


def test_one_run_one_kind_another_place_and_format(runs, capsys):
    folder = runs.run_dir(record(norm="bn", observe={"probe": PROBES}).config)
    argv = [str(folder), "--kind", "loss", "--format", "png", "--out", "paper/here"]
    assert plot(capsys, *argv) == (0, ["paper/here/loss.png", "paper/here/loss-dark.png"], [])
    assert Path("paper/here/loss.png").read_bytes().startswith(b"\x89PNG")


def drawn_runs(monkeypatch):
    """Note the seeds of the experiments of every figure, instead of drawing them."""
    from normlab.commands import plot as command

    seen = []

    def note(experiments, out, **kwargs):
        seen.append({e.name: [run.seed for run in e.runs] for e in experiments})

    monkeypatch.setattr(command, "_draw", note)
    return seen


def test_a_run_given_twice_is_drawn_once(runs, capsys, monkeypatch):
    seen = drawn_runs(monkeypatch)
    bn = runs.run_dir(record(norm="bn").config)
    plot(capsys, "runs", str(bn), str(bn.parent))
    assert seen == [{"bn": [1, 2], "ln": [1]}]


def test_a_run_that_has_not_ended_has_its_loss(runs, capsys, monkeypatch):
    going = keep(runs, seed=3, norm="bn", ended=False)
    _, paths, err = plot(capsys, str(going))
    assert paths == ["figures/loss.svg", "figures/loss-dark.svg"]
    assert "normlab: gradient_by_layer is left out: bn (no record yet)" in err
    seen = drawn_runs(monkeypatch)
    plot(capsys)
    assert seen == [{"bn": [1, 2, 3], "ln": [1]}]


def test_losses_of_different_tasks_share_no_figure(runs, capsys):
    keep(runs, norm="ln", choices={"task": "iwslt"}, batch_size=8)
    _, paths, _ = plot(capsys, "--kind", "loss")
    names = [
        f"figures/{task}/loss{dark}.svg" for task in ("iwslt", "toy") for dark in ("", "-dark")
    ]
    assert sorted(paths) == sorted(names)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nowhere"], "nowhere: no such run"),
        (["--runs-dir", "empty"], "empty: no run here"),
        (["--kind", "tid_by_layer"], "--kind tid_by_layer: no run has it: bn (the probe tid found"),
    ],
)
def test_what_cannot_be_drawn_is_one_clear_line(runs, capsys, argv, message):
    Path("empty").mkdir()
    assert normlab(["plot", *argv]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"normlab plot: {message}")
    assert not Path("figures").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.jsonl", '{"step": 1}\nrubbish\n{"step": 2}\n', "metrics.jsonl, line 2: damaged"),
        ("record.json", "{", "damaged record, not JSON at line 1"),
    ],
)
def test_a_damaged_file_is_named_as_its_reader_does(runs, capsys, name, content, message):
    damaged = runs.run_dir(record(norm="ln").config)
    (damaged / name).write_text(content)
    assert normlab(["plot", str(damaged)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    code, paths, (line, *_) = plot(capsys, "--kind", "loss")
    assert code == 1 and paths == ["figures/loss.svg", "figures/loss-dark.svg"]
    assert line.startswith("normlab: left out: ") and message in line


def test_a_kind_that_does_not_exist_is_refused_with_those_that_do(runs, capsys):
    with pytest.raises(SystemExit):
        main(["--kind", "pie"])
    assert "gradient_by_layer" in capsys.readouterr().err


def test_it_loads_neither_torch_nor_hydra_and_matplotlib_only_to_draw(runs):
    program = (
        "import sys; from normlab.commands.plot import main\n"
        "assert 'matplotlib' not in sys.modules\n"
        "main(['--kind', 'loss'])\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
        "assert not {'torch', 'hydra', 'omegaconf', 'wandb'} & set(sys.modules)\n"
    )
    env = {"PYTHONPATH": str(ROOT), "PATH": "", "MPLCONFIGDIR": "matplotlib"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
