"""The wheel, installed where there is no checkout and run from an empty folder."""

import os
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("normlab", "configs", "pyproject.toml", "README.md", "LICENSE")


def run(*command, cwd, **environment):
    kept = {name: os.environ[name] for name in ("HOME", "NORMLAB_CACHE") if name in os.environ}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**kept, "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return the `normlab` of an environment that has the wheel, and only sees the libraries."""
    pytest.importorskip("hatchling", reason="the docs extra is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in PARTS:  # a copy without what git ignores
        path = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__")
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=ignored)
        else:
            shutil.copy(path, source)
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    run(*pip, "--disable-pip-version-check", wheel, cwd=folder)
    (packages,) = (folder / "env").rglob("site-packages")
    (packages / "libraries.pth").write_text("\n".join(site.getsitepackages()))
    shutil.rmtree(source)
    return python.with_name("normlab")


def test_the_wheel_trains_from_an_empty_folder(installed, tmp_path):
    place = run(
        installed.with_name("python"), "-c", "import normlab; print(normlab.__file__)", cwd=tmp_path
    )
    assert Path(place.strip()).is_relative_to(installed.parents[1]), "not the wheel"
    small = ("budget.steps=4", "validate.every=4", "observe.threads=1", "task.test_search.beam=1")
    sizes = ("task.corpus.size=200", "task.corpus.valid_size=6", "task.corpus.test_size=6")
    search = "task.test_search.length_offset=2"
    said = run(
        *(installed, "train", "task=toy", "scale=smoke", "observe.sink.wandb.mode=disabled"),
        *(*small, *sizes, search),
        cwd=tmp_path,
    )
    assert "finished at step 4" in said
    assert "toy-ln-pre-" in run(installed, "list", "runs", cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
