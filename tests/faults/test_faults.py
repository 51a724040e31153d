"""A short round of every attack holds; `bash scripts/faults.sh` makes long ones."""

import random
from collections import Counter
from pathlib import Path

import pytest
import yaml

from normlab.config.compose import compose, to_dict
from tests.faults import archives, command_lines, folders, hostile, processes
from tests.faults.scenes import Stage
from tests.faults.tally import Tally
from tests.tiny_runs import write_corpus


@pytest.fixture(scope="module", autouse=True)
def _quick_yaml():
    """Read the same documents in a fifth of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml, "SafeLoader", yaml.CSafeLoader)
        yield


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    work = tmp_path_factory.mktemp("faults")
    return Stage(work, write_corpus(work / "text"))


@pytest.fixture
def tally():
    found = Tally()
    yield found
    assert found.fell == [] and sum(found.tried.values()) > 0


def test_every_bad_command_line_ends_in_one_line_that_names_what_is_wrong(tally: Tally):
    command_lines.attack(tally, random.Random(1), 80)


def test_a_strangers_config_is_refused_in_one_line_or_fits(tally: Tally):
    hostile.attack_configs(tally, to_dict(compose(["norm=bn", "task=mlm"])), 60, 1)


def test_a_strangers_record_is_refused_in_one_line_or_can_be_listed(tally: Tally, stage: Stage):
    hostile.attack_records(tally, (stage.undisturbed / "record.json").read_text("utf-8"), 300, 1)


def test_a_text_of_any_bytes_is_refused_in_one_line_or_read(tally: Tally, tmp_path: Path):
    hostile.attack_data(tally, tmp_path, 60, 1)


def test_a_strangers_run_folder_ends_no_list_and_is_left_as_it_is(tally: Tally, stage: Stage):
    folders.attack(tally, random.Random(1), stage.undisturbed, stage.work, 6)


def test_a_strangers_archive_is_refused_in_one_line_or_unpacks_to_text(tally: Tally, stage: Stage):
    archives.attack(tally, random.Random(1), stage.undisturbed, stage.work, 24)


def test_commands_killed_at_random_end_as_if_nothing_had_been(tally: Tally, stage: Stage):
    processes.attack_by_kills(tally, stage, random.Random(1), ["train", "data"])


def test_a_write_that_fails_is_named_and_the_same_command_ends_as_if_it_had_not(
    tally: Tally, stage: Stage
):
    total = stage.whole(stage.scenes["train"]).writes
    chosen = random.Random(1).sample(range(1, total + 1), 3)
    processes.attack_writes(tally, stage, "train", chosen)
    processes.attack_writes(tally, stage, "data", [7, 19])


def test_of_two_processes_on_one_run_one_carries_it_out(tally: Tally, stage: Stage):
    processes.attack_by_pairs(tally, stage, random.Random(1), ["train"])


def test_what_was_tried_is_kept_and_gone_on_with(tmp_path: Path):
    found, path = Tally(rounds=Counter(part=1)), tmp_path / "state.json"
    found.count("kind: one", "attack", "what happened")
    found.count("kind: two", "attack", None)
    found.keep(path)
    kept = Tally.read(path)
    kept.add(Tally.read(path))
    assert kept.rounds["part"] == 2 and kept.fell == found.fell * 2
    assert "| kind | 4 | 2 |" in kept.text(seed="1")


def test_the_harness_notices_what_falls():
    tally = Tally()
    tally.take("kind", "attack", lambda: "what happened")
    tally.take("kind", "attack", lambda: None)
    tally.take("kind", "attack", lambda: 1 // 0)
    assert (tally.tried["kind"], tally.held["kind"]) == (3, 1)
    text = tally.text(seed="1")
    assert "3 tried, 1 held" in text and "ZeroDivisionError" in text and "what happened" in text
    assert command_lines._problem(["norm=bn"], ("norm",)) == "composes"
