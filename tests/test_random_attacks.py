"""Random attacks: configs, records, texts, archives and run folders from an untrusted source."""

import copy
import gzip
import json
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from normlab.cli import main
from normlab.config.compose import compose
from normlab.config.run_config import from_dict, to_dict
from normlab.data.cache import MAX_BYTES, members
from normlab.data.folder_corpus import FolderCorpus
from normlab.records.labels import batch_label, corpus_label, norm_label
from normlab.records.record import RunRecord
from normlab.records.store import RunStore
from normlab.training.build import check_nodes
from tests.records.examples import record

STRANGE = ("nan", "../../x", "${oc.env:HOME}", "<script>", "\x1b[2J", "a\nb", 10**400)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS | st.sampled_from(STRANGE),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=6), v, max_size=3),
    max_leaves=6,
)
CONFIG = to_dict(compose(["norm=bn", "task=mlm"]))
RECORD = json.loads(record().to_json())


def often(count: int) -> Callable[..., Any]:
    checks = list(HealthCheck)
    return settings(
        max_examples=count, database=None, derandomize=True, suppress_health_check=checks
    )


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in nested lists and mappings."""
    if path:
        yield path
    inner = node if isinstance(node, dict) else dict(enumerate(node if type(node) is list else ()))
    for key, value in inner.items():
        yield from places(value, (*path, key))


def changed(content: Any, path: tuple[Any, ...], value: Any, *, remove: bool) -> Any:
    """Return nested content with the value at a path replaced or removed."""
    node = result = copy.deepcopy(content)
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    if remove:
        del node[path[-1]]
    return result


def in_one_line(act: Callable[[], object]) -> None:
    """Call a function; it must succeed, or raise a one-line error."""
    try:
        act()
    except (ValueError, OSError) as error:
        assert "\n" not in str(error).strip(), error


@often(15)
@given(st.sampled_from(list(places(CONFIG))), VALUES, st.booleans())
def test_a_random_config_is_accepted_or_refused_in_one_line(path, value, remove):
    hostile = changed(CONFIG, path, value, remove=remove)
    in_one_line(lambda: check_nodes(to_dict(from_dict(hostile))))


@often(50)
@given(st.sampled_from(list(places(RECORD))), VALUES, st.booleans(), st.binary(max_size=6))
def test_a_random_record_can_be_listed_or_is_refused_in_one_line(path, value, remove, noise):
    def listed(text: bytes) -> None:
        found = RunRecord.from_json(text, origin="here")
        labels = norm_label(found.config.get("choices", {})), batch_label(found.config)
        assert all(map(str, (*labels, corpus_label(found.config), found.outcome)))
        assert RunRecord.from_json(found.to_json(), origin="again") == found

    text = json.dumps(changed(RECORD, path, value, remove=remove)).encode()
    in_one_line(lambda: listed(text))
    at = len(text) * len(noise) // 7
    in_one_line(lambda: listed(text[:at] + noise + text[at + 1 :]))


@often(20)
@given(st.lists(st.binary(max_size=60), min_size=6, max_size=6), st.booleans())
def test_a_text_of_random_bytes_is_read_or_refused_in_one_line(tmp_path_factory, contents, packed):
    folder = tmp_path_factory.mktemp("text")
    names = [f"{split}.{code}" for split in ("train", "valid", "test") for code in ("de", "en")]
    for name, content in zip(names, contents, strict=True):
        (folder / (f"{name}.gz" if packed else name)).write_bytes(content)
    codes = {"source_language": "de", "target_language": "en"}
    in_one_line(FolderCorpus(data_dir=str(folder), **codes, form="raw").read)


def member(name: str, kind: bytes = tarfile.REGTYPE, to: str = "", size: int = 0) -> bytes:
    """Return the header and text of a tar archive's member; `size` is only claimed there."""
    text = b"" if size or kind != tarfile.REGTYPE else b"text\n"
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, to, size or len(text), 0o7777
    return info.tobuf(tarfile.GNU_FORMAT) + text + bytes(-len(text) % 512)


ARCHIVES = {
    "a path outside": member("a") + member("de-en/../../stolen"),
    "an absolute path": member("/tmp/normlab-stolen"),
    "a link outside": member("a", tarfile.SYMTYPE, "..") + member("a/stolen"),
    "a hard link": member("a", tarfile.LNKTYPE, "/etc/passwd") + member("a"),
    "a device": member("a", tarfile.CHRTYPE),
    "a bomb": member("a", size=MAX_BYTES + 10**9),
    "one name twice": member("a") + member("a", tarfile.DIRTYPE),
    "a long name": member("a/" * 60 + "ü\n\x1b[2J"),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_hostile_archive_is_read_or_refused_in_one_line_and_never_unpacked_to_disk(
    kind, tmp_path
):
    whole = gzip.compress(ARCHIVES[kind] + bytes(1024), 1)
    for content in (whole, whole[: len(whole) // 2]):
        (tmp_path / "archive").write_bytes(content)
        in_one_line(lambda: list(members(tmp_path / "archive", ("",))))
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]
    assert not Path("/tmp/normlab-stolen").exists()


HARM = {
    "removed": Path.unlink,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path.name)),
    "nested": lambda path: path.write_bytes(b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
    "noise": lambda path: path.write_bytes(random.Random(1).randbytes(3000)),
}


@pytest.mark.parametrize("harm", HARM)
def test_damaged_run_folders_do_not_stop_lists_or_reports_and_stay_unchanged(
    harm, tmp_path, capsys
):
    store = RunStore(tmp_path / "runs")
    for seed, name in enumerate(("record.json", "config.yaml", "metrics.jsonl", ""), 1):
        run = store.write(record(seed=seed), store.root / f"run{seed}" / "seed1").parent
        (run / "config.yaml").write_text(json.dumps(RECORD["config"]))
        (run / "metrics.jsonl").write_text('{"step": 1, "train/loss": 2.0}\n')
        if name:
            HARM[harm](run / name)
    before = sorted(map(str, store.root.rglob("*")))
    page = ["--out", str(tmp_path / "page")]
    for argv in (
        ["list", "runs", "--runs-dir", str(store.root)],
        ["report", str(store.root), *page],
    ):
        assert main(argv) in (0, 1)
        said = capsys.readouterr()
        assert "Traceback" not in said.err and "\x1b" not in said.err
        assert "finished" in said.out or argv[0] == "report"
    assert sorted(map(str, store.root.rglob("*"))) == before
