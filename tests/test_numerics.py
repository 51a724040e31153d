"""Which code made a run: the numerics, and the files of norms that are not part of normlab."""

import subprocess
from pathlib import Path

import pytest

from normlab.config.registry import option_names, sha256
from normlab.records import code
from normlab.records.code import module_file, own_norms, same_code
from scripts.golden import GOLDEN, parse


def test_all_norms_have_golden_losses():
    golden = {norm for norm, _ in parse(GOLDEN.read_text(encoding="utf-8"))}
    command = ["git", "ls-files", "--others", "configs/norm"]  # not committed yet
    done = subprocess.run(command, cwd=GOLDEN.parents[2], capture_output=True, text=True)
    new = {Path(line).stem for line in done.stdout.splitlines()}
    assert golden - new == {*option_names("norm")} - new


def test_the_file_of_a_user_norm_is_hashed_whichever_site_uses_it(tmp_path, monkeypatch):
    (tmp_path / "my_norm.py").write_text("class Mine: ...\n")
    (tmp_path / "norm").mkdir()
    (tmp_path / "norm" / "mine.yaml").write_text("_target_: my_norm.Mine\n")
    monkeypatch.setenv("NORMLAB_PATH", str(tmp_path))
    monkeypatch.setattr(code, "uncommitted_files", set)
    ln, mine = {"option": "ln"}, {"option": "mine"}
    assert own_norms({"norm": ln, "encoder_norm": None, "sites": None}) == {}
    places = [
        {"norm": mine},
        {"norm": ln, "decoder_norm": mine},
        {"norm": ln, "sites": {"*.ffn": mine}},
    ]
    (first,) = {tuple(own_norms(config).items()) for config in places}
    assert first[0][0] == "mine" and first[0][1].startswith("my_norm.py ")
    (tmp_path / "my_norm.py").write_text("class Mine: changed = True\n")
    assert own_norms({"norm": mine})["mine"] != first[0][1]


def test_an_edited_file_is_recorded_only_for_norms_that_depend_on_it(monkeypatch):
    batch = module_file("normlab.norms.batch")
    monkeypatch.setattr(code, "uncommitted_files", lambda: {batch})
    edited = f"batch.py {sha256(batch)[:10]}"
    norms = {name: own_norms({"norm": {"option": name}}) for name in ("bn", "rbn", "ln", "dyt")}
    assert norms == {"bn": {"bn": edited}, "rbn": {"rbn": edited}, "ln": {}, "dyt": {}}


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ((1, {}), (1, {}), True),
        ((1, {}), (2, {}), False),
        (("early-01", {}), (1, {}), False),
        ((1, {"mine": "a"}), (1, {}), True),  # paired with a baseline run
        ((1, {"mine": "a"}), (1, {"mine": "b"}), False),
    ],
)
def test_two_runs_have_the_same_code_if_numerics_and_shared_user_norms_agree(a, b, same):
    assert same_code(a, b) is same
