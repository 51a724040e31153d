"""Multi30k task 1: German-English image captions (Elliott et al. 2016), 29,000 training pairs.

Decides which files and which data set of the hub count as Multi30k, which test set is `test` (2016
Flickr, as in the literature), and the counts and checksums by which the text is recognised.
"""

from pathlib import Path

from normlab.data.corpus import Corpus, Form, ParallelText, find_text, missing_text, read_parallel
from normlab.data.hub import has_tables, read_table, unavailable

HUB = "bentrevett/multi30k"
SIZES = {"train": 29_000, "valid": 1_014, "test": 1_000}
# SHA-256 of the published text: UTF-8, a sentence a line.
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
        if {source_language, target_language} != {"de", "en"}:
            raise ValueError(
                f"Multi30k here is German-English: task.corpus.source_language={source_language} "
                f"and target_language={target_language} must be de and en, in either order"
            )
        self.languages = (source_language, target_language)
        self._folder = None if data_dir is None else Path(data_dir).expanduser()
        self._hub = hub
        self._splits: dict[str, ParallelText] | None = None
        self._label = "Multi30k"

    @property
    def label(self) -> str:
        """What results are called: Multi30k where the text is the published one; reads it."""
        self.splits()
        return self._label

    def origin(self) -> str:
        """Return the data set of the hub."""
        return f"Hugging Face Hub, {self._hub}"

    def splits(self) -> dict[str, ParallelText]:
        """Return `train`, `valid`, `test` and, where there are files, `test_2017`; read once."""
        if self._splits is None:
            self._splits = (
                self._from_hub() if self._folder is None else self._from_folder(self._folder)
            )
            self._verify(self._splits)
        return self._splits

    def _from_folder(self, folder: Path) -> dict[str, ParallelText]:
        # A folder that holds several data sets, as a lab's data folder does, has ours under its own
        # name.
        if (folder / self.name).is_dir():
            folder = folder / self.name
        if find_text(folder, "train", "en") is None and folder.is_dir() and has_tables(folder):
            return self._rename(read_table(str(folder), languages=self.languages))
        splits: dict[str, ParallelText] = {}
        for split, names in FILES.items():
            present = [name for name in names if find_text(folder, name, self.languages[0])]
            if present:
                splits[split] = read_parallel(folder, present[0], *self.languages)
            elif split in SIZES:
                raise ValueError(missing_text(folder, f"{names[0]}.{self.languages[0]}"))
        return splits

    def _from_hub(self) -> dict[str, ParallelText]:
        try:
            tables = read_table(self._hub, languages=self.languages)
        except Exception as error:
            raise unavailable(
                "Multi30k",
                f"the data set {self._hub} of the Hugging Face Hub",
                error,
                "With a network, run the command again. Without one, set data_dir=FOLDER to a "
                "folder that holds train, val and test_2016_flickr as .de and .en (plain or .gz), "
                "or the data set's train.jsonl, val.jsonl and test.jsonl, downloaded elsewhere "
                "from https://huggingface.co/datasets/"
                f"{self._hub}.",
            ) from error
        return self._rename(tables)

    def _rename(self, tables: dict[str, ParallelText]) -> dict[str, ParallelText]:
        missing = [split for split in HUB_SPLITS if split not in tables]
        if missing:
            raise ValueError(
                f"Multi30k tables lack {', '.join(missing)}; there are {', '.join(tables)}"
            )
        return {ours: tables[theirs] for theirs, ours in HUB_SPLITS.items()}

    def _verify(self, splits: dict[str, ParallelText]) -> None:
        """Name the text honestly where its counts or checksums are not the published ones."""
        counts = {split: len(splits[split]) for split in SIZES}
        if counts != SIZES:
            given = "/".join(map(str, counts.values()))
            self._label = f"Multi30k, not the published split ({given} pairs)"
            return
        other = [
            f"{split}.{lang}"
            for split, published in CHECKSUMS.items()
            for lang, found in zip(self.languages, splits[split].checksums(), strict=True)
            if found != published[lang]
        ]
        if other:
            self._label = f"Multi30k, edited text ({', '.join(other)} differ from the published)"
