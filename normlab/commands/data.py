"""`normlab inspect --data`: prepare the text or the images of a task and describe them."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from normlab.commands._arguments import HelpFormatter
from normlab.commands._terminal import print_table

HELP = "prepare a task's data and describe it: sizes, tokens, padding, checksums"

_EXAMPLES = """examples:
  normlab inspect --data task=toy
  normlab inspect --data task=multi30k data_dir=FOLDER
  normlab inspect --data task=iwslt data_dir=FOLDER task.corpus.train_from=valid
  normlab inspect --data task=multi30k data_dir=FOLDER batching=random batch_size=128
  normlab inspect --data task=mlm
  normlab inspect --data task=lm task/corpus=documents data_dir=FOLDER \\
    task.corpus.form=paragraphs
  normlab inspect --data task=cifar10 data_dir=FOLDER

Settings are those of `normlab train`; batch_size, max_tokens and batching decide the
padding that is shown.
"""
_SAMPLES = 3
_FIRST = {"train": 0, "valid": 1}
_PAIR_FIGURES = ("pairs", "dropped", "tokens", "unknown", "mean", "median", "95 %", "max")
_DOCUMENT_FIGURES = (
    *("documents", "sentences", "tokens", "words", "unknown"),
    *("mean", "median", "95 %", "max", "examples"),
)


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    result = argparse.ArgumentParser(
        prog="normlab inspect --data",
        description="Prepare the data of a task, then print what they are.",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    result.add_argument(
        "overrides", nargs="+", metavar="key=value", help="task=TASK and settings of it"
    )
    result.add_argument("--json", action="store_true", help="print the description as JSON")
    return result


def main(argv: Sequence[str]) -> int:
    """Prepare and describe; ValueError where the data cannot be had or read."""
    arguments = parser().parse_args(argv)
    from normlab.config.compose import compose, to_dict
    from normlab.tasks.documents import DocumentTask
    from normlab.tasks.images import Classification
    from normlab.tasks.translation import Translation
    from normlab.train.build import build_task

    config = to_dict(compose(arguments.overrides))
    task = build_task(config)
    description = task.describe()
    if arguments.json:
        import json

        print(json.dumps(description, indent=1, sort_keys=True))
        return 0
    if isinstance(task, Translation):
        text = task.data.texts["train"]
        _print_pairs(description, list(zip(text.source, text.target, strict=True))[:_SAMPLES])
    if isinstance(task, DocumentTask):
        _print_documents(description, task.samples(_SAMPLES))
    if isinstance(task, Classification):
        _print_pictures(description)
    return 0


def _splits(description: Mapping[str, Any]) -> list[str]:
    """Return the splits as people list them; a record keeps its keys in alphabetical order."""
    return sorted(description["sizes"], key=lambda split: (_FIRST.get(split, 2), split))


def _print_pairs(description: Mapping[str, Any], samples: Sequence[tuple[str, str]]) -> None:
    source, target = languages = description["languages"]
    print(f"{description['label']}, {source} to {target}")
    print(f"form {description['form']}; licence: {description['licence']}\n")
    rows, sums = [], []
    for split in _splits(description):
        dropped = description["dropped_long"][split] + description["dropped_empty"][split]
        for lang, file in zip(languages, description["files"][split], strict=True):
            lengths = description["lengths"][split][lang]
            rows.append(
                [
                    split,
                    lang,
                    f"{description['sizes'][split]:,}",
                    f"{dropped:,}",
                    f"{description['tokens'][split][lang]:,}",
                    f"{description['unknown'][split][lang]:,}",
                    f"{lengths['mean']:.1f}",
                    f"{lengths['median']:.0f}",
                    f"{lengths['p95']:.0f}",
                    f"{lengths['max']}",
                ]
            )
            sums.append([split, file, description["checksums"][split][lang]])
    columns = ["split", "side", *_PAIR_FIGURES]
    print_table(columns, rows, notes=_notes(description), numeric=_PAIR_FIGURES)
    print()
    print_table(["split", "file", "SHA-256 of its text"], sums, labels=2)
    for pair in samples:
        print()
        for lang, line in zip(languages, pair, strict=True):
            print(f"{lang}  {line}")


def _notes(description: Mapping[str, Any]) -> list[str]:
    vocabulary = description["vocabulary"]
    entries = f"{vocabulary['source']:,} entries, joint"
    if not vocabulary["joint"]:
        entries = f"{vocabulary['source']:,} source and {vocabulary['target']:,} target entries"
    notes = [
        "dropped: pairs with an empty side or over max_length "
        f"({description['max_length']} tokens); mean to max: tokens a sentence, no end mark",
        f"vocabulary: {entries}",
        f"padding: {description['padding_share']:.1%} of the positions of a training batch",
    ]
    if "reference_length_check" in description:
        check = description["reference_length_check"]
        published = " or ".join(f"{n:,}" for n in check["expected"])
        notes.append(f"English test reference: {check['found']:,} tokens; published: {published}")
    return notes


def _print_documents(description: Mapping[str, Any], samples: Sequence[str]) -> None:
    print(f"{description['label']}, language {description['language']}")
    print(f"licence: {description['licence']}\n")
    rows = []
    for split in _splits(description):
        lengths = description["lengths"][split]
        counts = [description[name][split] for name in ("sizes", "sentences", "tokens", "words")]
        rows.append(
            [
                split,
                *(f"{count:,}" for count in (*counts, description["unknown"][split])),
                f"{lengths['mean']:.1f}",
                f"{lengths['median']:.0f}",
                f"{lengths['p95']:.0f}",
                f"{lengths['max']}",
                f"{next(iter(description['examples'][split].values())):,}",
            ]
        )
    columns = ["split", *_DOCUMENT_FIGURES]
    print_table(columns, rows, notes=_document_notes(description), numeric=_DOCUMENT_FIGURES)
    print()
    sums = [[split, description["checksums"][split]] for split in _splits(description)]
    print_table(["split", "SHA-256 of its text"], sums)
    for sample in samples:
        print(f"\n{sample}")


def _print_pictures(description: Mapping[str, Any]) -> None:
    size, classes = description["size"], description["classes"]
    print(f"{description['label']}, from {description['source']}")
    print(f"licence: {description['licence']}\n")
    rows = [
        [split, f"{description['sizes'][split]:,}", description["checksums"][split]]
        for split in _splits(description)
    ]
    notes = [
        f"a picture: {size['height']} x {size['width']} positions; channels: {size['channels']}",
        f"{len(classes)} classes: {', '.join(map(str, classes))}",
    ]
    columns = ["split", "pictures", "SHA-256 of pixels and classes"]
    print_table(columns, rows, notes=notes, numeric=["pictures"])


def _document_notes(description: Mapping[str, Any]) -> list[str]:
    vocabulary, train = description["vocabulary"], description["examples"]["train"]
    by_split = ("repeated_documents", "one_sentence", "without_token", "long_sentences")
    counted = {
        **{name: sum(description[name].values()) for name in by_split},
        **description["left_out"],
        **dict(list(train.items())[1:]),
    }
    treated = ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in counted.items() if n)
    return [
        "mean to max: tokens a sentence; examples: what a model is given, of one epoch in training",
        f"vocabulary: {vocabulary['size']:,} entries ({vocabulary['pieces']}"
        f"{', lowercased' if vocabulary['lowercase'] else ''})",
        f"padding: {description['padding_share']:.1%} of the positions of a training batch",
        f"counted: {treated or 'nothing out of the ordinary'}",
    ]
