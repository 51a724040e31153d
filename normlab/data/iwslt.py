"""IWSLT'14 German-English, prepared as in fairseq's `prepare-iwslt14.sh`.

The text lines of WIT3's `train.tags.*` are cut into Moses tokens, pairs of 1 to 175 tokens per side
are kept if their lengths differ by a factor of at most 1.5, and all text is lowercased. Every 23rd
pair goes to valid, and five evaluation sets make up test. The tokenizer is sacremoses, not the
original Moses script. A text is labelled plain IWSLT'14 only if it has the protocol's 6,750 test
pairs, the published reference length and, within 1 %, the published number of training pairs.
"""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from normlab.data.cache import download, members
from normlab.data.corpus import REQUIRED, Form, GermanEnglish, ParallelText
from normlab.data.languages import language_of
from normlab.data.text_files import decoded, files_of, find_text, paired, read_parallel
from normlab.data.vocabulary import join_pieces, moses_tokens
from normlab.errors import UserError

URL = "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
ARCHIVE = "de-en.tgz"
LANGUAGES = ("de", "en")
TRAIN_PAIRS, TEST_PAIRS = 160_239, 6_750
# The numbers of English test tokens in published logs, for two versions of the tokenizer.
REFERENCE_LENGTHS = (131_161, 131_156)
MAX_TOKENS, MAX_RATIO, VALID_EVERY = 175, 1.5, 23
# The order in which the evaluation sets are joined into one test split.
TEST_SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
# Infixes of the file names that fairseq's script writes. Files without an infix hold BPE pieces.
INFIXES: Mapping[str, Form] = {".bpe": "bpe", "": "bpe", ".tok": "tokenized"}


@dataclass(kw_only=True, eq=False)
class Iwslt14(GermanEnglish):
    """IWSLT'14 de-en, tokenized and lowercased, or as BPE pieces written by fairseq's script.

    Attributes:
        data_dir: a folder with `de-en.tgz` or with `{train,valid,test}[.bpe|.tok].{de,en}[.gz]`;
            null downloads the archive.
        train_from: the split to train on. `valid` is for data without training text: a run trains
            on the valid split, except for every 23rd pair, which is held out for validation. This
            is "mini-TED", not IWSLT'14.
        prepared: which form of prepared text to read from a folder; `auto` prefers BPE pieces.
        download: `archive`, the only source without data_dir.
    """

    train_from: Literal["train", "valid"]
    prepared: Literal["auto", "bpe", "tokenized"]
    download: Literal["archive"]
    name = "iwslt14"
    licence = "CC BY-NC-ND (TED talks)"

    @property
    def form(self) -> Form:
        """`bpe` if the text is split into BPE pieces, otherwise `tokenized`. Reads the text."""
        return "bpe" if self._form_and_texts[0] == "bpe" else "tokenized"

    @property
    def label(self) -> str:
        """The name in result tables, which says whether the text is IWSLT'14 as published."""
        if self.train_from == "valid":
            return "mini-TED (trained on the valid split of IWSLT'14; not an IWSLT'14 result)"
        train, test = self.splits["train"], self.splits["test"]
        english = test.target if self.languages == LANGUAGES else test.source
        length = sum(len(join_pieces(line).split()) for line in english)
        # Tokenizer versions disagree on whether a few training pairs exceed the cleaning limits.
        whole = abs(len(train) - TRAIN_PAIRS) <= TRAIN_PAIRS // 100 and len(test) == TEST_PAIRS
        if whole and length in REFERENCE_LENGTHS:
            return "IWSLT'14 de-en"
        return (
            f"IWSLT'14 de-en, not the protocol's text ({len(train)} training and {len(test)} test "
            f"pairs, {length} English test tokens)"
        )

    def key(self) -> str:
        form, texts = self._form_and_texts
        checksums = [text.checksums() for text in texts.values()]
        key = f"normlab.iwslt14/1 {form} {self.languages} {self.train_from} {checksums}"
        return f"{key} sacremoses {version('sacremoses')}" if form == "raw" else key

    def read(self) -> dict[str, ParallelText]:
        form, texts = self._form_and_texts
        if form == "raw":
            train, test = map(_lowered_tokens, (texts["train"], texts["test"]))
            texts = {**hold_out(clean(train)), "test": test}
        if self.train_from == "valid":
            texts = {**hold_out(texts["valid"]), "test": texts["test"]}
        if self.languages == LANGUAGES:
            return texts
        return {split: ParallelText(x.target, x.source) for split, x in texts.items()}

    def files(self) -> Mapping[str, Path]:
        if self.data_dir is None:
            return {}
        folder = Path(self.data_dir).expanduser()
        if (archive := folder / ARCHIVE).is_file():
            return {ARCHIVE: archive}
        infix, _ = self._prepared_text(folder)
        return files_of(folder, (f"{split}{infix}" for split in self._read_splits), LANGUAGES)

    @property
    def _read_splits(self) -> Sequence[str]:
        return REQUIRED[1:] if self.train_from == "valid" else REQUIRED

    def _prepared_text(self, folder: Path) -> tuple[str, Form]:
        """Return the infix and the form of the prepared text in a folder."""
        infixes = [x for x, form in INFIXES.items() if self.prepared in ("auto", form)]
        for infix in infixes:
            if find_text(folder, f"test{infix}.de"):
                return infix, INFIXES[infix]
        names = ", ".join(f"test{infix}.de" for infix in infixes)
        raise UserError(
            f"{folder} has neither {ARCHIVE} nor prepared text (looked for {names}, also .gz; "
            f"task.corpus.prepared={self.prepared}): set data_dir to a folder that "
            "contains one of them"
        )

    @cached_property
    def _form_and_texts(self) -> tuple[Form, dict[str, ParallelText]]:
        """The form of the texts, and the texts by split (only `train` and `test` if raw)."""
        if self.data_dir is None:
            return "raw", read_archive(download("IWSLT'14", URL, f"iwslt14-{ARCHIVE}"))
        folder = Path(self.data_dir).expanduser()
        if (folder / ARCHIVE).is_file():
            return "raw", read_archive(folder / ARCHIVE)
        infix, form = self._prepared_text(folder)
        return form, {
            split: read_parallel(folder, f"{split}{infix}", LANGUAGES)
            for split in self._read_splits
        }


def read_archive(archive: Path) -> dict[str, ParallelText]:
    """Read the raw text of the release: `train`, and the evaluation sets joined as `test`."""
    files = {Path(name).name: text for name, text in members(archive, (".de", ".en", ".xml"))}
    patterns = ["train.tags.de-en.%s", *(f"IWSLT14.{name}.de-en.%s.xml" for name in TEST_SETS)]
    names = [[pattern % language for language in LANGUAGES] for pattern in patterns]
    if missing := ", ".join(x for pair in names for x in pair if x not in files):
        raise UserError(f"{archive} lacks {missing}; the published archive is {URL}")
    texts = [
        paired(pair, (read(decoded(io.BytesIO(files[x]), origin=x)) for x in pair))
        for pair, read in zip(names, [training_lines] + [segments] * len(TEST_SETS), strict=True)
    ]
    sides = ([x.source for x in texts[1:]], [x.target for x in texts[1:]])
    test = ParallelText(*([line for part in side for line in part] for side in sides))
    return {"train": texts[0], "test": test}


def training_lines(lines: Iterable[str]) -> list[str]:
    """Return the text lines of a `train.tags` file, without metadata lines and title tags."""
    text_lines = (line for line in lines if not re.search("<url>|<talkid>|<keywords>", line))
    return [re.sub("</?(?:title|description)>", "", line).strip() for line in text_lines]


def segments(lines: Iterable[str]) -> list[str]:
    """Return the sentences of an evaluation file, with typographic apostrophes made ASCII.

    Entities such as `&amp;` are kept, as in fairseq's script, because the published references
    contain them.
    """
    matches = (re.search(r'<seg id="[0-9]+">\s*(.*?)\s*</seg>', line) for line in lines)
    return [match.group(1).replace("\u2019", "'") for match in matches if match]


def _lowered_tokens(text: ParallelText) -> ParallelText:
    sides = zip((text.source, text.target), LANGUAGES, strict=True)
    tokens = (
        [x.lower() for x in moses_tokens(lines, language_of(code, "languages"), whole_words=False)]
        for lines, code in sides
    )
    return ParallelText(*tokens)


def clean(text: ParallelText) -> ParallelText:
    """Keep pairs of 1 to 175 tokens per side whose lengths differ by a factor of at most 1.5."""
    pairs = enumerate(zip(text.source, text.target, strict=True))
    sizes = ((i, sorted(len(side.split()) for side in pair)) for i, pair in pairs)
    return text.pick([i for i, (a, b) in sizes if a >= 1 and b <= min(MAX_TOKENS, MAX_RATIO * a)])


def hold_out(text: ParallelText) -> dict[str, ParallelText]:
    """Split off every 23rd pair, starting with the 23rd, as `valid`; the rest is `train`."""
    valid = range(VALID_EVERY - 1, len(text), VALID_EVERY)
    train = [i for i in range(len(text)) if i not in valid]
    return {"train": text.pick(train), "valid": text.pick(valid)}
