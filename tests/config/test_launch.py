"""RANK and WORLD_SIZE in the environment: which commands wait for other ranks, and which do not."""

import pytest

from normlab.cli import main
from normlab.config.launch import Launch, launch
from normlab.distributed import process_group
from tests.tiny_runs import tiny, write_corpus
from tests.training.trainers import free_port


@pytest.fixture
def environment(monkeypatch):
    """Return a function that sets environment variables until the test ends."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)

    def set_(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))

    return set_


@pytest.fixture
def one_of_two(environment, monkeypatch):
    """Make this process the first of two, of which the second never starts."""
    environment(RANK=0, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
    monkeypatch.setattr(process_group, "_RENDEZVOUS_MINUTES", 0.02)
    monkeypatch.setattr(process_group, "_NOTICE_SECONDS", 0.1)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"RANK": 1},
        {"WORLD_SIZE": 4},
        {"RANK": 0, "WORLD_SIZE": 1},
        {"RANK": "", "WORLD_SIZE": 2},
    ],
)
def test_leftover_or_incomplete_rank_variables_mean_a_single_process(variables, environment):
    environment(**variables)
    assert launch() == Launch(0, 1, 0, 1)
    assert process_group.initialize() == (0, 1)


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), ("a", 2), (0, "two")])
def test_an_invalid_rank_or_world_size_raises_an_error(rank, size, environment):
    environment(RANK=rank, WORLD_SIZE=size)
    with pytest.raises(ValueError, match=f"environment has RANK={rank}, WORLD_SIZE={size}, but"):
        launch()


def test_a_process_that_never_starts_raises_an_error_after_a_short_wait(one_of_two, capfd):
    with pytest.raises(ValueError, match=r"RANK=0 WORLD_SIZE=2 .*cannot connect") as caught:
        process_group.initialize()
    assert "unset RANK and WORLD_SIZE" in str(caught.value) and "\n" not in str(caught.value)
    assert "waiting up to 0.02 min for all 2 processes" in capfd.readouterr().err


def test_only_training_waits_for_other_processes(one_of_two, monkeypatch, capsys, tmp_path):
    def refuse(*_, **__):
        raise AssertionError("a command other than train joins a process group")

    monkeypatch.setattr(process_group, "_rendezvous", refuse)
    text = write_corpus(tmp_path / "text")
    assert main(["inspect", "--data", *tiny(text, tmp_path / "runs")]) == 0
    assert main(["inspect", "--only", "leak", *tiny(text, tmp_path / "runs")]) == 0


def test_a_sweep_started_on_several_ranks_is_refused(one_of_two, capsys):
    assert main(["train", "-m", "seed=1,2"]) == 1
    said = capsys.readouterr().err
    assert "RANK=0 WORLD_SIZE=2" in said and "a sweep starts its own processes" in said
