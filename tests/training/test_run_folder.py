"""Which results in its folder a run may reuse, by code, arithmetic, data, number of processes."""

import errno
import os

import pytest
from msgspec.structs import replace

from normlab.config.compose import compose
from normlab.errors import UserError
from normlab.records.code import NUMERICS
from normlab.records.files import check_writable
from normlab.records.store import run_id
from normlab.training.run_folder import RunFolder
from tests.training.sink_runs import record

HERE, THERE = ("cpu", "fp32", "AVX2"), ("cpu", "fp32", "AVX512-BF16")


def run(tmp_path, *overrides: str) -> RunFolder:
    return RunFolder(compose(["task=toy", f"runs_dir={tmp_path}", "device=cpu", *overrides]))


def test_a_run_of_other_code_is_refused_accepted_or_repeated_as_configured(tmp_path):
    assert run(tmp_path).takes_code((NUMERICS, {}), ["abc"])
    with pytest.raises(
        ValueError, match=r"different code \(numerics 0, commit abc; now.*runs_dir"
    ) as said:
        run(tmp_path).takes_code((0, {}), ["abc"])
    assert "other_code=accept" in str(said.value) and "other_code=rerun" in str(said.value)
    assert run(tmp_path, "observe.other_code=accept").takes_code((0, {}), [])
    assert not run(tmp_path, "observe.other_code=rerun").takes_code((0, {}), [])


def test_a_run_resumes_only_with_the_arithmetic_it_started_with(tmp_path):
    assert run(tmp_path).takes_arithmetic([*HERE], HERE)
    for policy in ("refuse", "accept"):
        with pytest.raises(ValueError, match=r"AVX512-BF16.*AVX2.*other_code=rerun.*runs_dir"):
            run(tmp_path, f"observe.other_code={policy}").takes_arithmetic(THERE, HERE)
    assert not run(tmp_path, "observe.other_code=rerun").takes_arithmetic(THERE, HERE)


def test_a_record_is_reused_on_any_machine_but_not_with_a_different_number_of_ranks(
    tmp_path,
):
    here = run(tmp_path)
    environment = {"world_size": 1, "device_type": "cpu", "instruction_set": "AVX512-BF16"}
    made = record(numerics=NUMERICS, config=here.config, environment=environment)
    assert here.finished(processes=1) is None
    here.store.write(made, here.folder)
    with pytest.raises(ValueError, match=r"is the record of toy-bn-.*; remove the file"):
        here.finished(processes=1)
    made = replace(made, run_id=run_id(here.config))
    here.store.write(made, here.folder)
    found = here.finished(processes=1)
    assert found is not None and found.run_id == made.run_id
    with pytest.raises(ValueError, match="trained by 1 processes, but this run has 2"):
        here.finished(processes=2)
    stopped = replace(made, outcome=replace(made.outcome, status="interrupted"))
    here.store.write(stopped, here.folder)
    assert here.finished(processes=1) is None


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_disk_without_file_locks_raises_an_error(number, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    run = RunFolder(compose([f"runs_dir={tmp_path}"]))
    with pytest.raises(UserError, match=f"cannot be locked .*{os.strerror(number)}"), run.lock():
        pass


def test_a_dangling_link_in_place_of_a_folder_raises_an_error(tmp_path):
    (tmp_path / "runs").symlink_to("/nowhere/at/all")
    with pytest.raises(UserError, match=r"runs is a link to /nowhere/at/all, which does not exist"):
        check_writable(tmp_path / "runs" / "a" / "seed1")
