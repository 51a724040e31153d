"""Values, configs, records and data files that a stranger could send, made by Hypothesis."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from normlab.config.compose import from_dict, to_dict
from normlab.data.corpus import FolderCorpus
from normlab.records.record import RunRecord
from normlab.train.build import check_nodes
from tests.faults.tally import Tally

CONFIGS, RECORDS, DATA = "configs of records", "records", "data files"

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(width=64)
    | st.text(max_size=8)
    | st.sampled_from(
        ("nan", "inf", "../../x", "${oc.env:HOME}", "<script>", "\x1b[2J", "=1+1", "a\nb", 10**400)
    )
)
VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in nested lists and mappings."""
    if path:
        yield path
    if isinstance(node, dict):
        for key, value in node.items():
            yield from places(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from places(value, (*path, index))


def changed(content: Any, path: tuple[Any, ...], value: Any, *, remove: bool = False) -> Any:
    """Return nested content with another value at a path, or without it."""
    result = copy.deepcopy(content)
    node = result
    for part in path[:-1]:
        node = node[part]
    if remove:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return result


def one_line(error: Exception) -> str | None:
    """Return what is wrong with an error as a message to a person: it is one line of ours."""
    if not isinstance(error, ValueError | OSError):
        return f"{type(error).__name__}: {error}"
    return f"more than one line: {error}" if "\n" in str(error).strip() else None


def attack_configs(tally: Tally, config: dict[str, Any], count: int, number: int) -> None:
    """Load configs of which one place holds something else, or nothing."""
    paths = list(places(config))

    @_many(count, number)
    @given(st.sampled_from(paths), VALUES, st.booleans())
    def run(path: tuple[Any, ...], value: Any, remove: bool) -> None:
        hostile = changed(config, path, value, remove=remove)

        def load() -> None:
            check_nodes(to_dict(from_dict(hostile)))

        tally.count(CONFIGS, f"{path} {value!r:.80} {remove}", _refused_or_fine(load))

    run()


def attack_records(tally: Tally, text: str, count: int, number: int) -> None:
    """Read records of which one place holds something else, or whose bytes are damaged."""
    content = json.loads(text)
    paths = list(places(content))

    @_many(count, number)
    @given(st.sampled_from(paths), VALUES, st.integers(0, 3), st.binary(max_size=6))
    def run(path: tuple[Any, ...], value: Any, how: int, noise: bytes) -> None:
        if how < 2:
            hostile = json.dumps(changed(content, path, value, remove=bool(how))).encode()
        else:
            at = hash(path) % len(text)
            hostile = text.encode()[:at] + noise + text.encode()[at + len(noise) * (how == 2) :]
        tally.count(
            RECORDS,
            f"{path} {value!r:.80} {how}",
            _refused_or_fine(lambda: _consume(hostile)),
        )

    run()


def _consume(text: bytes) -> None:
    """Do with a record what lists and tables do."""
    from normlab.records.aggregate import Cell
    from normlab.records.labels import batch_label, corpus_label, norm_label
    from normlab.records.pairs import arithmetic, code_remark

    record = RunRecord.from_json(text, origin="here")
    cell = Cell.of([record])
    config = record.config
    _ = record.fingerprint, cell.outcome, cell.parts, cell.tokens_per_second()
    _ = norm_label(config.get("choices", {})), batch_label(config), corpus_label(config)
    _ = arithmetic(record), code_remark([record.made_by, (1, {})])
    for name in record.scores:
        f"{cell.score(name)}"
    assert RunRecord.from_json(record.to_json(), origin="again") == record


def attack_data(tally: Tally, folder: Path, count: int, number: int) -> None:
    """Read a corpus whose files hold any bytes."""

    @_many(count, number)
    @given(st.lists(st.binary(max_size=60), min_size=6, max_size=6), st.booleans())
    def run(contents: list[bytes], packed: bool) -> None:
        for place, content in enumerate(contents):
            name = f"{('train', 'valid', 'test')[place // 2]}.{('de', 'en')[place % 2]}"
            for path in (folder / name, folder / f"{name}.gz"):
                path.unlink(missing_ok=True)
            (folder / (f"{name}.gz" if packed else name)).write_bytes(content)

        def read() -> None:
            corpus = FolderCorpus(
                str(folder),
                source_language="de",
                target_language="en",
                form="raw",
                infix="",
                empty_lines="drop",
            )
            for text in corpus.splits().values():
                text.checked()

        tally.count(DATA, repr(contents), _refused_or_fine(read))

    run()


def _refused_or_fine(act: Callable[[], None]) -> str | None:
    try:
        act()
    except Exception as error:
        return one_line(error)
    return None


def _many(count: int, number: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test of Hypothesis `count` times, whatever it finds, from a seed of its own."""
    checks = list(HealthCheck)
    often = settings(max_examples=count, database=None, deadline=None, suppress_health_check=checks)
    return lambda test: seed(random.Random(number).randrange(2**32))(often(test))
