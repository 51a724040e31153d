"""Runs are stored where their config says, and a damaged run does not hide the others."""

import pytest

from normlab.records.record import RunRecord, fingerprint
from normlab.records.store import RunStore, read_record, run_id, select
from tests.records.examples import config, record


def records_of(store, **where):
    return select([kept for _, kept in store.entries()], where)


@pytest.fixture
def store(tmp_path):
    store = RunStore(tmp_path / "runs")
    for kept in [
        record(seed=1, norm="ln"),
        record(seed=2, norm="ln"),
        record(seed=1, norm="bn", batch_size=8),
        record(seed=1, norm="bn", choices={"decoder_norm": "ln"}, decoder={"norm": "ln"}),
        record(seed=3, norm="bn", status="diverged", bleu=None, batch_size=8),
    ]:
        store.write(kept, store.run_dir(kept.config))
    return store


def test_the_folder_of_a_run_depends_only_on_its_config(tmp_path):
    values = config(seed=3, norm="bn")
    expected = tmp_path / f"toy-bn-pre-{fingerprint(values)}" / "seed3"
    assert RunStore(tmp_path).run_dir(values) == expected
    assert run_id(values) == f"toy-bn-pre-{fingerprint(values)}-seed3"


@pytest.mark.parametrize("norm", ["mine (1)", "mine v2", "mine#2", "mine/2"])
def test_a_record_of_an_option_with_any_name_reads_back(norm):
    made = record(norm=norm)
    assert RunRecord.from_json(made.to_json(), origin="here").run_id == made.run_id


def test_records_read_back_in_the_order_of_paths(store):
    found = store.entries()
    assert [path for path, _ in found] == sorted(path for path, _ in found)
    assert all(path == store.run_dir(kept.config) for path, kept in found)
    assert [kept for _, kept in found] == records_of(store)
    assert len(found) == 5 and store.damaged == []


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ({"norm": "ln"}, 2),
        ({"norm": "bn"}, 2),
        ({"norm": "bn+ln"}, 1),
        ({"encoder_norm": "bn"}, 3),
        ({"norm": "bn", "seed": "3"}, 1),
        ({"status": "diverged"}, 1),
        ({"batch_size": 8}, 2),
        ({"batch_size": "8"}, 2),
        ({"optim.lr": 5e-4}, 5),
        ({"optim.lr": "0.0005"}, 5),
        ({"scale": None}, 5),
        ({"scale": "null"}, 5),
        ({"placement": "post"}, 0),
        ({"decoder.norm": "ln"}, 1),
    ],
)
def test_records_are_selected_by_option_status_and_config(store, where, count):
    assert len(records_of(store, **where)) == count


def test_an_unknown_key_raises_an_error_that_lists_the_allowed_ones(store):
    with pytest.raises(ValueError, match=r"'nrom'; allowed: .*norm, placement, .*optim\.lr"):
        records_of(store, nrom="bn")
    assert select([], {"nrom": "bn"}) == []


def test_damaged_records_are_skipped_and_reported(store):
    path = store.run_dir(config(seed=1, norm="ln")) / "record.json"
    path.write_text(path.read_text()[:100])
    binary = store.run_dir(config(seed=2, norm="ln")) / "record.json"
    binary.write_bytes(b"\xff\xfe")
    assert len(records_of(store)) == 3
    assert [damaged for damaged, _ in store.damaged] == [path, binary]
    assert all(str(damaged) in message for damaged, message in store.damaged)
    with pytest.raises(ValueError, match=r"damaged record \(not JSON: "):
        read_record(path.parent)
    path.unlink()
    binary.unlink()
    records_of(store)
    assert store.damaged == []


def test_unfinished_runs_are_listed_separately_and_folders_of_runs_are_not_searched(store):
    ended = store.run_dir(config(seed=1, norm="ln"))
    (ended / "config.yaml").touch()
    (ended / "wandb" / "files").mkdir(parents=True)
    (ended / "wandb" / "files" / "config.yaml").touch()
    going = store.run_dir(config(seed=9))
    (going / "checkpoints").mkdir(parents=True)
    (going / "config.yaml").touch()
    assert len(store.entries()) == 5 and store.open == [going]


def test_a_link_that_hides_a_run_is_reported_and_not_followed(store, tmp_path):
    moved = store.run_dir(config(seed=2, norm="ln"))
    moved.rename(tmp_path / "disk")
    moved.symlink_to(tmp_path / "disk")
    gone = store.run_dir(config(seed=1, norm="ln"))
    gone.rename(tmp_path / "other")
    gone.symlink_to(tmp_path / "nowhere")
    (store.root / "latest").symlink_to(store.run_dir(config(seed=3, norm="bn", batch_size=8)))
    (store.root / "data").symlink_to(store.root.parent / "disk" / "..")
    assert len(records_of(store)) == 3
    assert [path for path, _ in store.damaged] == [store.root / "data", gone, moved]
    assert all("is a link, and links are not followed" in reason for _, reason in store.damaged)
    assert len(records_of(RunStore(tmp_path / "disk"))) == 1


def test_reading_a_run_without_a_record_raises_an_error(tmp_path):
    with pytest.raises(ValueError, match="no such record; the run has not ended yet"):
        read_record(tmp_path / "nowhere")
    assert records_of(RunStore(tmp_path / "nowhere")) == []
