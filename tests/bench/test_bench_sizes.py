"""Cost by size: what is run for a point, what is refused, and the figure from fixed points."""

import json

import pytest

from normlab.bench.sizes import AXES, Point, figures, points, take
from normlab.cli import main as cli
from normlab.reports.figures import style
from normlab.reports.figures.sizes import sizes
from tests.bench.small import TOY


def command(axis, value, tmp_path):
    return Point(axis, value).command(["norm=bn"], tmp_path / "found.json", 2)


def test_a_size_of_the_model_is_a_setting_of_the_run(tmp_path):
    found = command("model.dim", 512, tmp_path)
    assert found[1:6] == ["-m", "normlab", "bench", "train", "norm=bn"]
    assert {"model.dim=512", "model.ffn_dim=2048"} <= set(found)


def test_corpus_and_processes_are_told_to_the_benchmark(tmp_path):
    pairs = command("pairs", 1000, tmp_path)
    assert pairs[pairs.index("--pairs") + 1] == "1000"
    ranks = command("ranks", 2, tmp_path)
    assert ranks[1:6] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    assert not any("ranks" in word for word in command("ranks", 1, tmp_path))


def test_runs_side_by_side_are_added_up(tmp_path):
    alone, both = (take(Point("runs", count), TOY, steps=1) for count in (1, 2))
    assert (len(alone), len(both)) == (1, 2)
    found = figures(Point("runs", 2), both)
    for name in ("tokens_per_second", "tokens_per_busy_second"):
        parts = [report["runs"][0][name] for report in both]
        for figure in ("median", "min", "max"):
            assert found[name][figure] == sum(part[figure] for part in parts)
        assert found[name]["n"] == 3
    assert found["peak_memory_bytes"] == sum(report["peak_memory_bytes"] for report in both)
    assert figures(Point("runs", 1), alone)["value"] == 1


def test_every_axis_has_its_points():
    assert [(point.axis, point.value) for point in points(["ranks"])] == [
        ("ranks", 1),
        ("ranks", 2),
    ]
    assert len(list(points(list(AXES)))) == sum(map(len, AXES.values()))


def test_bad_input_is_named(capsys, tmp_path):
    assert cli(["bench", "sizes", "--axes", "heads"]) == 1
    assert "'heads'" in capsys.readouterr().err
    assert cli(["bench", "sizes", "--figure", "sizes.pdf"]) == 1
    assert "sizes.pdf" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"model\.depth=-1"):
        take(Point("model.depth", -1), [], steps=1)


def test_the_report_has_the_environment_once_beside_its_points(tmp_path, capsys, monkeypatch):
    overrides = [*TOY, "norm=bn"]
    monkeypatch.setitem(AXES, "model.dim", (8,))
    path = tmp_path / "found.json"
    asked = ["--axes", "model.dim", "--steps", "1", "--json", str(path)]
    assert cli(["bench", "sizes", *asked, *overrides]) == 0
    report = json.loads(path.read_text("utf-8"))
    assert report["environment"]["precision"] == "fp32"
    (point,) = report["points"]
    assert (point["axis"], point["value"]) == ("model.dim", 8)
    assert "environment" not in point
    assert "model.dim=8" in capsys.readouterr().out


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_figure_of_fixed_points_has_fixed_bytes(ending, tmp_path):
    rate = {"median": 900.0, "min": 850.0, "max": 930.0}
    fixed = [
        {"axis": axis, "value": value, "tokens_per_busy_second": rate, "peak_memory_bytes": 2**30}
        for axis in ("model.dim", "pairs")
        for value in AXES[axis]
    ]
    for name in ("a", "b"):
        style.write(sizes(fixed), tmp_path / f"{name}.{ending}", title="Cost")
    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
    figure = sizes(fixed)
    assert [axes.get_xlabel() for axes in figure.axes[2:]] == ["width", "sentence pairs"]
    assert [text.get_text() for text in figure.axes[3].get_xticklabels()] == [
        "1k",
        "10k",
        "100k",
        "1M",
    ]
