"""The installed wheel trains from an empty folder without a checkout, also with a user's norm."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.docs.pages import ROOT

PARTS = ("normlab", "configs", "pyproject.toml", "README.md", "LICENSE")


def run(*command, cwd, **environment):
    kept = {name: os.environ[name] for name in ("HOME", "NORMLAB_CACHE") if name in os.environ}
    environment = {**kept, "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_trains_from_an_empty_folder(tmp_path):
    pytest.importorskip("hatchling", reason="the docs extra is not installed")
    source, place, empty = (tmp_path / name for name in ("source", "installed", "empty"))
    source.mkdir()
    empty.mkdir()
    for name in PARTS:  # a copy without what git ignores
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    (source / "results").mkdir()
    shutil.copy(ROOT / "results" / "claims.json", source / "results")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=source)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(place)
    shutil.rmtree(source)
    (entries,) = place.glob("*.dist-info/entry_points.txt")
    assert "normlab = normlab.cli:main" in entries.read_text()
    python = [sys.executable, "-c", "import sys, normlab.cli as c; print(c.__file__, c.main())"]
    sizes = ("task.corpus.size=200", "task.corpus.valid_size=6", "task.corpus.test_size=6")
    small = ("budget.steps=1", "validate.every=1", "observe.threads=1", "task.test_search.beam=1")
    words = ("task=toy", "scale=smoke", "sink=[jsonl]", "task.test_search.length_offset=2")
    said = run(*python, "train", *words, *small, *sizes, cwd=empty, PYTHONPATH=str(place))
    assert "finished at step 1" in said and f"{place}/normlab/cli.py 0" in said
    assert [path.name for path in empty.iterdir()] == ["runs"]
    ask = 'import normlab.cli as c; c.main(["norm", "new", "mine", '
    ask += '"--in", "own"]); c.main(["list", "norms", "include=own"])'
    listed = run(sys.executable, "-c", ask, cwd=empty, PYTHONPATH=str(place))
    assert "MineNorm" in listed and not [*place.rglob("mine*")]
    given = ("norm=mine", "include=own", *words, *small, *sizes)
    said = run(*python, "train", *given, cwd=empty, PYTHONPATH=str(place))
    assert "toy-mine" in said and "finished at step 1" in said
    assert {path.name for path in empty.iterdir()} == {"runs", "own"}
    assert "Claim 7: " in run(*python, "claims", "7", cwd=empty, PYTHONPATH=str(place))
