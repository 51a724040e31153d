"""A run is identified by the files it uses: what changes elsewhere makes it no other."""

import shutil
from pathlib import Path

import pytest

from normlab.config import compose, to_dict
from normlab.records.code import (
    changed_files,
    code_differences,
    code_hash,
    code_of,
    same_code,
)

ROOT = Path(__file__).resolve().parents[2]


def composed(*overrides):
    return to_dict(compose(["task=toy", "sink=[]", *overrides]))


@pytest.fixture(scope="module")
def ln():
    return composed("norm=ln")


@pytest.fixture(scope="module")
def bn():
    return composed("norm=bn")


@pytest.fixture
def copy(tmp_path):
    """Return a copy of the package."""
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(ROOT / "normlab", tmp_path / "normlab", ignore=ignored))


def test_a_run_uses_its_own_variants_alone(ln, bn):
    first, second = code_of(ln)["code_files"], code_of(bn)["code_files"]
    assert set(second) - set(first) == {"norms/batch.py", "norms/ghost.py"}
    assert set(first) <= set(second)
    for path in ("__init__.py", "run.py", "norms/local.py", "placements/pre.py", "decoding.py"):
        assert path in first
    for path in (
        "placements/post.py",
        "tasks/mlm.py",
        "probes/attention.py",
        "data/documents/corpus.py",
    ):
        assert path not in first


def test_what_only_shows_results_is_no_part_of_a_run(ln):
    paths = code_of(ln)["code_files"]
    shown = ("commands/", "reports/", "claims/", "train/sinks/", "health/", "config.py", "cli.py")
    assert not [path for path in paths if path.startswith(shown)]


def test_a_probe_is_part_of_the_runs_that_have_it(ln):
    with_probe = composed("norm=ln", "probe=[attention]")
    assert "probes/attention.py" in code_of(with_probe)["code_files"]
    assert same_code(code_of(ln), code_of(with_probe))


def test_new_files_make_no_run_another(copy, ln, bn):
    before = [code_of(config, copy) for config in (ln, bn)]
    for folder in ("norms", "tasks", "probes", "placements", "models", "data"):
        (copy / folder / "throw_away.py").write_text('"""Nothing."""\n')
    assert [code_of(config, copy) for config in (ln, bn)] == before


def test_a_changed_variant_makes_another_of_the_runs_that_use_it(copy, ln, bn):
    before = [code_of(config, copy) for config in (ln, bn)]
    with (copy / "norms" / "batch.py").open("a") as file:
        file.write("\n# Another state.\n")
    after = [code_of(config, copy) for config in (ln, bn)]
    assert after[0] == before[0]
    assert changed_files(before[1], after[1]) == ["norms/batch.py"]
    assert not same_code(before[1], after[1])
    assert same_code(after[0], after[1]) and same_code(before[0], after[1])


@pytest.mark.parametrize("path", ["run.py", "distributed.py", "norms/moments.py", "build.py"])
def test_a_change_in_what_all_runs_share_makes_another_of_each(copy, ln, bn, path):
    before = [code_of(config, copy) for config in (ln, bn)]
    with (copy / path).open("a") as file:
        file.write("\n# Another state.\n")
    for config, was in zip((ln, bn), before, strict=True):
        assert changed_files(was, code_of(config, copy)) == [path]
        assert code_of(config, copy)["code"] != was["code"]


def test_a_file_that_is_imported_inside_a_function_counts(copy, ln):
    (copy / "norms" / "late.py").write_text('"""Nothing."""\n')
    with (copy / "norms" / "base.py").open("a") as file:
        file.write("\n\ndef later():\n    if True:\n        from normlab.norms.late import x\n")
        file.write("    with open(x):\n        import normlab.norms.sample\n")
    (copy / "norms" / "sample").mkdir()
    (copy / "norms" / "sample" / "__init__.py").write_text('"""Nothing."""\n')
    files = code_of(ln, copy)["code_files"]
    assert {"norms/late.py", "norms/sample/__init__.py"} <= set(files)


def test_what_a_type_checker_alone_reads_does_not_count(copy, ln):
    (copy / "norms" / "late.py").write_text('"""Nothing."""\n')
    with (copy / "norms" / "base.py").open("a") as file:
        file.write("\n\nif TYPE_CHECKING:\n    from normlab.norms.late import x\n")
    assert "norms/late.py" not in code_of(ln, copy)["code_files"]


def test_runs_that_name_no_files_are_alike_where_their_hashes_are(ln):
    old, new = {"code": "abc"}, code_of(ln)
    assert same_code(old, {"code": "abc"})
    assert not same_code(old, {"code": "abd"})
    assert not same_code(old, new)
    assert same_code({}, {})


def test_files_that_runs_use_in_several_states_are_named():
    ln = {"code": "1", "code_files": {"run.py": "a", "norms/local.py": "b"}}
    bn = {"code": "2", "code_files": {"run.py": "a", "norms/batch.py": "c"}}
    later = {"code": "3", "code_files": {"run.py": "a", "norms/batch.py": "d"}}
    assert code_differences([ln, bn]) is None
    assert code_differences([ln, bn, later]) == ["norms/batch.py"]
    assert code_differences([ln, {"code": "1"}]) == []
    assert code_differences([{"code": "1"}, {"code": "2"}]) == []
    assert code_differences([{"code": "1"}, {"code": "1"}, {"code": "1"}]) is None


def test_the_hash_of_the_whole_package_is_of_what_can_move_a_result(copy):
    before = code_hash(copy)
    with (copy / "commands" / "ls.py").open("a") as file:
        file.write("\n# Another state.\n")
    assert code_hash(copy) == before
    with (copy / "norms" / "batch.py").open("a") as file:
        file.write("\n# Another state.\n")
    assert code_hash(copy) != before
