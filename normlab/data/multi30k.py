"""Multi30k task 1: German-English image captions (Elliott et al. 2016), 29,000 training pairs.

`test` is 2016 Flickr, as in the literature. Counts and checksums tell whether text is the published
one.
"""

from functools import cached_property
from pathlib import Path

from normlab.data.corpus import (
    Corpus,
    Form,
    ParallelText,
    check_german_english,
    find_text,
    has_tables,
    missing_text,
    read_parallel,
    read_table,
    unavailable,
)

HUB = "bentrevett/multi30k"
SIZES = {"train": 29_000, "valid": 1_014, "test": 1_000}
# SHA-256 of the published text: UTF-8, one sentence per line.
CHECKSUMS = {
    "train": {
        "de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
        "en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    },
    "valid": {
        "de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
        "en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    },
    "test": {
        "de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
        "en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    },
}
# File names of each split, the published one first.
FILES = {
    "train": ("train",),
    "valid": ("val", "valid"),
    "test": ("test_2016_flickr", "test2016", "test"),
    "test_2017": ("test_2017_flickr", "test2017"),
}
HUB_SPLITS = {"train": "train", "validation": "valid", "test": "test"}


class Multi30k(Corpus):
    """Multi30k from a folder or from the hub.

    A folder has `{train,val,test_2016_flickr}.{de,en}[.gz]`, or the hub's JSON lines.
    """

    name = "multi30k"
    licence = "non-commercial research and education (Flickr30k captions)"
    form: Form = "raw"

    def __init__(
        self, data_dir: str | None, *, source_language: str, target_language: str, hub: str = HUB
    ) -> None:
        self.languages = check_german_english("Multi30k", source_language, target_language)
        self._folder = None if data_dir is None else Path(data_dir).expanduser()
        self._hub = hub

    @property
    def label(self) -> str:
        """What results are called: plain Multi30k only where the text is the published one."""
        splits = self.splits()
        counts = {split: len(splits[split]) for split in SIZES}
        if counts != SIZES:
            given = "/".join(map(str, counts.values()))
            return f"Multi30k, not the published split ({given} pairs)"
        other = [
            f"{split}.{lang}"
            for split, published in CHECKSUMS.items()
            for lang, found in zip(self.languages, splits[split].checksums(), strict=True)
            if found != published[lang]
        ]
        if other:
            return f"Multi30k, edited text ({', '.join(other)} differ from the published)"
        return "Multi30k"

    def origin(self) -> str:
        return f"Hugging Face Hub, {self._hub}"

    def splits(self) -> dict[str, ParallelText]:
        return self._text

    @cached_property
    def _text(self) -> dict[str, ParallelText]:
        if self._folder is None:
            return self._from_tables(self._hub)
        # A lab's data folder holds ours under its own name.
        named = self._folder / self.name
        folder = named if named.is_dir() else self._folder
        if find_text(folder, "train.en") is None and folder.is_dir() and has_tables(folder):
            return self._from_tables(str(folder))
        splits: dict[str, ParallelText] = {}
        for split, names in FILES.items():
            present = [name for name in names if find_text(folder, f"{name}.{self.languages[0]}")]
            if present:
                splits[split] = read_parallel(folder, present[0], *self.languages)
            elif split in SIZES:
                raise ValueError(missing_text(folder, f"{names[0]}.{self.languages[0]}"))
        return splits

    def _from_tables(self, path: str) -> dict[str, ParallelText]:
        """Read a folder of tables, or the hub's."""
        try:
            tables = read_table(path, splits=HUB_SPLITS, languages=self.languages)
        except Exception as error:
            if path != self._hub:
                raise
            raise unavailable(
                "Multi30k",
                f"the data set {self._hub} of the Hugging Face Hub",
                error,
                "Run the command again, or set data_dir=FOLDER to a folder with train, val and "
                "test_2016_flickr as .de and .en (plain or .gz), or with the data set's .jsonl "
                f"files of https://huggingface.co/datasets/{self._hub}.",
            ) from error
        return {ours: tables[theirs] for theirs, ours in HUB_SPLITS.items()}
