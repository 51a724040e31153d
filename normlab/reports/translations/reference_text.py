"""The sources and references of a run's test set, read without torch or network access."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from normlab.errors import UserError
from normlab.records.record import RunRecord

Text = tuple[Sequence[str], Sequence[str]]
"""Sources and references, one line per sentence."""
SPLIT = "test"


def checksums(record: RunRecord) -> object:
    """Return the checksums of a run's test set, which identify it."""
    return (record.data.get("checksums") or {}).get(SPLIT)


def text_of_test(record: RunRecord, data_dir: Path | None = None) -> Text:
    """Return the sources and detokenized references of a run's test set, in order.

    They are read from `data_dir` or, if it is None, from the run's own data folder. Nothing is
    downloaded. Raises UserError if the task is not translation, or if the text is missing or is not
    the text that the run was tested on.
    """
    from normlab.config.instantiation import builder_of
    from normlab.config.registry import node_settings
    from normlab.data.cache import offline
    from normlab.data.corpus import Corpus

    task, key = record.config["task"], "task.corpus"
    if "corpus" not in task or "test_search" not in task:
        raise UserError(f"{record.run_id}: {record.choice('task')} is not a translation task")
    node = dict(task["corpus"])
    if data_dir is not None and "data_dir" in node:
        node["data_dir"] = str(data_dir)
    with offline():  # reads only the corpus, because a task would import torch
        try:
            corpus = cast(
                "Corpus", builder_of(node, key, Corpus, (), node_settings(task, "task")["corpus"])()
            )
            text = corpus.splits[SPLIT]
        except (UserError, OSError) as error:
            message = f"the test text cannot be read: {error} (pass its folder with --data-dir)"
            raise UserError(message) from None
    if dict(zip(corpus.languages, text.checksums(), strict=True)) != checksums(record):
        message = (
            f"the test text in the data folder is not the text that {record.run_id} was tested on"
        )
        raise UserError(f"{message}; pass the right folder with --data-dir")
    if corpus.form == "raw":
        return text.source, text.target
    from normlab.data.languages import language_of
    from normlab.data.vocabulary import join_pieces, moses_text

    join = join_pieces if corpus.form == "bpe" else str
    target = moses_text(map(join, text.target), language_of(corpus.languages[1], "languages"))
    return [*map(join, text.source)], target
