"""A short round of every attack holds; `bash scripts/faults.sh` makes long ones."""

import random
from pathlib import Path

import pytest

from normlab.config import compose, to_dict
from tests.faults import command_lines, folders, hostile, processes
from tests.faults.tally import Tally
from tests.tiny_runs import write_corpus


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> processes.Bench:
    work = tmp_path_factory.mktemp("faults")
    return processes.Bench(work, write_corpus(work / "text"))


@pytest.fixture
def tally():
    found = Tally()
    yield found
    assert found.fell == [] and sum(found.tried.values()) > 0


def test_every_bad_command_line_ends_in_one_line_that_names_what_is_wrong(tally: Tally):
    command_lines.attack(tally, random.Random(1), 80)


def test_a_strangers_config_is_refused_in_one_line_or_fits(tally: Tally):
    hostile.attack_configs(tally, to_dict(compose(["norm=bn", "task=mlm"])), 60, 1)


def test_a_strangers_record_is_refused_in_one_line_or_can_be_listed(
    tally: Tally, bench: processes.Bench
):
    hostile.attack_records(tally, (bench.undisturbed / "record.json").read_text("utf-8"), 300, 1)


def test_a_text_of_any_bytes_is_refused_in_one_line_or_read(tally: Tally, tmp_path: Path):
    hostile.attack_data(tally, tmp_path, 60, 1)


def test_a_strangers_run_folder_ends_no_list_and_is_left_as_it_is(
    tally: Tally, bench: processes.Bench
):
    folders.attack(tally, random.Random(1), bench.undisturbed, bench.work, 6)


def test_runs_killed_at_random_end_as_if_nothing_had_been(tally: Tally, bench: processes.Bench):
    processes.attack_by_kills(tally, bench, random.Random(1), 2)


def test_a_write_that_fails_is_named_and_the_same_command_ends_as_if_it_had_not(
    tally: Tally, bench: processes.Bench
):
    processes.attack_writes(tally, bench, random.Random(1), 4)


def test_of_two_processes_on_one_run_one_carries_it_out(tally: Tally, bench: processes.Bench):
    processes.attack_by_pairs(tally, bench, random.Random(1), 1)


def test_the_harness_notices_what_falls():
    tally = Tally()
    tally.take("kind", "attack", lambda: "what happened")
    tally.take("kind", "attack", lambda: None)
    tally.take("kind", "attack", lambda: 1 // 0)
    assert (tally.tried["kind"], tally.held["kind"]) == (3, 1)
    text = tally.text(minutes=1, seed=1)
    assert "3 tried, 1 held" in text and "ZeroDivisionError" in text and "what happened" in text
    assert command_lines._problem(["norm=bn"], ("norm",)) == "composes"
