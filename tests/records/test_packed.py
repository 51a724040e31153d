"""Packed runs are read back as they were written, and each has an address."""

import gzip
import io
import math
import re

import pytest

from normlab.cli import main as cli
from normlab.config.compose import compose
from normlab.config.run_config import from_dict, to_dict
from normlab.records import packed
from normlab.records.files import read_file
from normlab.records.packed import CURVES, HYPOTHESES, PACK, RECORDS, Key, Pack, write_pack
from normlab.records.store import RunStore, read_hypotheses, read_record
from normlab.reports.run_paths import one_run, runs_of
from normlab.reports.runs import read_runs, rows_of_run
from tests.records.examples import record

RUNS = {
    Key("ln", "", 1): record(seed=1),
    Key("ln", "", 2): record(seed=2),
    Key("bn", "placement=pre", 1): record(seed=1, norm="bn", bleu=math.nan),
    Key("bn", "placement=post", 1): record(seed=1, norm="bn", batch_size=8),
    Key("bn", "placement=post", 2): None,
}
LN, PRE, POST = Key("ln", "", 1), Key("bn", "placement=pre", 1), Key("bn", "placement=post", 1)
ROWS = {LN: [{"step": 3, "valid/loss": 2.5}, {"step": 4, "valid/loss": math.inf}]}
LINES = {LN: {"test": ["ein Hund", ""], "test_2017": ["\u2028"]}, PRE: {"test": ["x"]}}


@pytest.fixture
def folder(tmp_path):
    write_pack(tmp_path / "small", RUNS, ROWS, LINES)
    return tmp_path / "small"


def test_packed_runs_read_back_in_order_and_are_rewritten_byte_for_byte(folder):
    found = Pack(folder)
    assert list(found.records) == list(RUNS)
    for key, made in RUNS.items():
        read = found.records[key]
        assert (made and made.to_json()) == (read and read.to_json())
    assert found.curves == ROWS and found.hypotheses == LINES
    before = [(folder / name).read_bytes() for name in PACK]
    write_pack(folder, found.records, found.curves, dict(reversed(LINES.items())))
    assert [(folder / name).read_bytes() for name in PACK] == before
    write_pack(folder, RUNS)
    assert [path.name for path in folder.iterdir()] == [RECORDS]


def test_pandas_reads_one_run_per_row(folder):
    frame = pytest.importorskip("pandas").read_json(folder / RECORDS, lines=True)
    assert frame["row"].tolist() == ["ln", "ln", "bn", "bn", "bn"]
    assert frame["scores"][0]["test/bleu"]["value"] == RUNS[LN].scores["test/bleu"].value


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        (":ln@seed1", [LN]),
        (":ln", [LN, Key("ln", "", 2)]),
        (":bn placement=post@seed1", [POST]),
        (":bn", [PRE, POST]),
        ("", [LN, Key("ln", "", 2), PRE, POST]),
    ],
)
def test_the_address_of_packed_runs_can_be_read_like_a_folder(folder, name, keys):
    found = RunStore(f"{folder}{name}").entries()
    assert [place for place, _ in found] == [Pack(folder).addresses[key] for key in keys]
    for (place, made), key in zip(found, keys, strict=True):
        assert made.run_id == read_record(place).run_id == RUNS[key].run_id
        assert rows_of_run(place) == ROWS.get(key, [])
        assert read_hypotheses(place) == LINES.get(key, {})


def test_commands_accept_the_address_of_a_packed_run(folder):
    names = [place.name for place in runs_of(folder.parent / "small:ln")]
    assert names == ["small:ln@seed1", "small:ln@seed2"]
    assert one_run(folder.parent / "small:bn placement=pre").name == "small:bn placement=pre@seed1"
    with pytest.raises(
        ValueError, match=r"small:ln has 2 runs; choose one, such as .*small:ln@seed1"
    ):
        one_run(folder.parent / "small:ln")


@pytest.mark.parametrize("command", ["inspect", "predict"])
def test_a_published_run_has_no_weights_to_load(folder, command, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ein Hund")))
    assert cli([command, f"{folder}:bn placement=pre"]) == 1
    assert (
        "small:bn placement=pre@seed1 is a published run, which keeps no weights"
        in capsys.readouterr().err
    )


def test_the_config_of_an_older_run_gets_the_defaults_of_newer_keys():
    config = to_dict(compose(["task=toy", "norm=bn"]))
    old = {key: value for key, value in config.items() if key != "freeze_statistics"}
    for node, lacks in (("observe", ("test_noise", "fast")), ("validate", ("best",))):
        old[node] = {key: value for key, value in config[node].items() if key not in lacks}
    assert to_dict(from_dict(old)) == config
    with pytest.raises(ValueError, match="colour"):
        from_dict({**old, "colour": "blue"})


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ln@seed7", "is not a published run; available: seed1, seed2"),
        ("bn placement=post@seed2", "is not a published run; available: seed1"),
        ("rms@seed1", "is not a published run; available: ln, bn placement=pre, bn placement=post"),
    ],
)
def test_the_error_for_an_unknown_address_lists_the_available_runs(folder, address, message):
    with pytest.raises(ValueError, match=message):
        RunStore(f"{folder}:{address}").entries()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"seed": 1', '"seed": "1"', "line 1 is"),
        ('"params": ', '"params": "x", "was": ', r"line 1 is a damaged record \(params"),
        ("{", "", "line 1 is"),
    ],
)
def test_a_damaged_line_is_reported_and_other_files_stay_readable(folder, old, new, message):
    path = folder / RECORDS
    path.write_text(path.read_text().replace(old, new, 1))
    other = record(seed=3)
    store = RunStore(folder.parent)
    store.write(other, folder.parent / "runs" / "seed3")
    assert [kept for _, kept in store.entries()] == [other]
    ((where, said),) = store.damaged
    assert where == path and re.search(rf"records\.jsonl, {message}", said)
    assert "restore it, or remove its folder and publish again" in said


@pytest.mark.parametrize("name", [CURVES, HYPOTHESES])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"{}\n", mtime=0)[:-3], "damaged"),
        (b"no gzip", "damaged"),
        (gzip.compress(b'{"row": "ln"}\n', mtime=0), "line 1 is"),
        (
            gzip.compress(
                b'{"row": "", "point": "", "seed": 1, "rows": [{}], "splits": 3}', mtime=0
            ),
            "line 1",
        ),
        (gzip.compress(b"\n" * 20_000, mtime=0), "more than 10000 bytes"),
    ],
)
def test_damaged_curves_and_translations_raise_an_error(
    folder, name, content, message, monkeypatch
):
    monkeypatch.setattr("normlab.records.packed.MOST_UNPACKED", 10_000)
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}.*{message}"):
        _ = Pack(folder).curves if name == CURVES else Pack(folder).hypotheses


def test_a_damaged_file_is_read_once_for_all_runs_of_its_folder(folder, monkeypatch):
    (folder / CURVES).write_bytes(gzip.compress(b"no line of JSON\n", mtime=0))
    reads = []
    monkeypatch.setattr(packed, "read_file", lambda path: reads.append(path) or read_file(path))
    found, problems = read_runs([folder])
    assert len(found) == 4 and len(problems) == 1 and "line 1 is" in problems[0]
    assert reads.count(folder / CURVES) == 1
