"""The IWSLT'14 German-English protocol of fairseq's `prepare-iwslt14.sh`, from WIT3's files on.

Decides, as that script does: which lines of `train.tags.*` are text, Moses tokens, the length
cleaning (1 to 175 tokens, ratio 1.5, before subwords), lowercasing, every 23rd cleaned pair as
valid, and the five evaluation sets that make up test. One deviation: tokens are sacremoses', whose
rules are Moses' own; the length of the reference is the check on that.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from normlab.data import moses
from normlab.data.corpus import ParallelText, read_lines

LANGUAGES = ("de", "en")
MIN_TOKENS, MAX_TOKENS, MAX_RATIO = 1, 175, 1.5
VALID_EVERY = 23
# The order in which the sets are joined to one test.
TEST_SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")

_SKIPPED = ("<url>", "<talkid>", "<keywords>")
_TAGS = re.compile(r"</?(?:title|description)>")
_SEGMENT = re.compile(r'<seg id="[0-9]+">\s*(.*?)\s*</seg>')


def find_release(folder: Path) -> Path | None:
    """Return the folder with `train.tags.de-en.de`, this one or its `de-en`, or None."""
    for place in (folder, folder / "de-en"):
        if (place / "train.tags.de-en.de").is_file():
            return place
    return None


def read_release(folder: Path) -> dict[str, ParallelText]:
    """Read the files of the release into `train`, `valid`, `test`: tokenised, lowercased.

    Raises ValueError naming the file that is missing, or whose counterpart differs in length.
    """
    tags = [folder / f"train.tags.de-en.{lang}" for lang in LANGUAGES]
    sets = [
        [folder / f"IWSLT14.{name}.de-en.{lang}.xml" for lang in LANGUAGES] for name in TEST_SETS
    ]
    missing = [path.name for pair in [tags, *sets] for path in pair if not path.is_file()]
    if missing:
        raise ValueError(
            f"{folder} lacks {', '.join(missing)} of the IWSLT'14 de-en release; unpack all of "
            "de-en.tgz"
        )
    train = paired([training_lines(read_lines(path)) for path in tags], tags)
    tests = [paired([segments(read_lines(path)) for path in pair], pair) for pair in sets]
    return assemble(train, tests)


def assemble(train: ParallelText, tests: list[ParallelText]) -> dict[str, ParallelText]:
    """Apply the protocol to raw (de, en) training text and evaluation sets."""
    cleaned = clean(tokenized(train))
    test = ParallelText(
        [line for part in tests for line in part.source],
        [line for part in tests for line in part.target],
        origins=("the test sets (de)", "the test sets (en)"),
    )
    return {**hold_out(lowercase(cleaned)), "test": lowercase(tokenized(test))}


def training_lines(lines: Iterable[str]) -> list[str]:
    """Return the text of a `train.tags` file: no metadata; titles and descriptions without tags."""
    kept = (line for line in lines if not any(tag in line for tag in _SKIPPED))
    return [_TAGS.sub("", line).strip() for line in kept]


def segments(lines: Iterable[str]) -> list[str]:
    """Return the sentences of an evaluation file, typographic apostrophes made plain.

    Entities such as `&amp;` stay as they are, as in the script: the published reference has them.
    """
    found = (_SEGMENT.search(line) for line in lines)
    return [match.group(1).replace("\u2019", "'") for match in found if match]


def paired(sides: list[list[str]], files: list[Path]) -> ParallelText:
    """Pair two sides read from files, which name them in errors."""
    source, target = sides
    return ParallelText(source, target, origins=(str(files[0]), str(files[1])))


def tokenized(text: ParallelText) -> ParallelText:
    """Return Moses tokens of both sides."""
    return ParallelText(
        moses.tokenize(text.source, lang="de"),
        moses.tokenize(text.target, lang="en"),
        origins=text.origins,
    )


def lowercase(text: ParallelText) -> ParallelText:
    """Return both sides in lower case."""
    source, target = ([line.lower() for line in side] for side in (text.source, text.target))
    return ParallelText(source, target, origins=text.origins)


def clean(text: ParallelText) -> ParallelText:
    """Leave out pairs with a side outside 1 to 175 tokens, or one over 1.5 times the other."""
    kept = [i for i in range(len(text)) if _fits(text.source[i].split(), text.target[i].split())]
    return _take(text, kept)


def _fits(source: list[str], target: list[str]) -> bool:
    shorter, longer = sorted((len(source), len(target)))
    return shorter >= MIN_TOKENS and longer <= min(MAX_TOKENS, MAX_RATIO * shorter)


def hold_out(text: ParallelText) -> dict[str, ParallelText]:
    """Split off every 23rd pair, the 23rd first, as `valid`; the rest is `train`."""
    valid = range(VALID_EVERY - 1, len(text), VALID_EVERY)
    held = set(valid)
    return {
        "train": _take(text, [i for i in range(len(text)) if i not in held]),
        "valid": _take(text, list(valid)),
    }


def _take(text: ParallelText, indices: list[int]) -> ParallelText:
    source, target = ([side[i] for i in indices] for side in (text.source, text.target))
    return ParallelText(source, target, origins=text.origins)
