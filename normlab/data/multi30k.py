"""Multi30k task 1: German-English image captions (Elliott et al. 2016), 29,000 training pairs of raw text.

Decides which files and which data set of the hub count as Multi30k, which test set is `test` (2016 Flickr, as in the
literature), and the counts and checksums by which the text is recognised.
"""

from __future__ import annotations

from pathlib import Path

from normlab.data.corpus import Corpus, ParallelText, find_text, missing_text, read_parallel
from normlab.data.hub import has_tables, read_table, unavailable

HUB = "bentrevett/multi30k"
SIZES = {"train": 29_000, "valid": 1_014, "test": 1_000}
# File names of each split, the published one first.
FILES = {
    "train": ("train",),
    "valid": ("val", "valid"),
    "test": ("test_2016_flickr", "test2016", "test"),
    "test_2017": ("test_2017_flickr", "test2017"),
}
HUB_SPLITS = {"train": "train", "validation": "valid", "test": "test"}


class Multi30k(Corpus):
    """Multi30k from a folder (`{train,val,test_2016_flickr}.{de,en}[.gz]`, or the hub's JSON lines) or the hub."""

    name = "multi30k"
    licence = "non-commercial research and education (Flickr30k captions)"
    form = "raw"

    def __init__(
        self, data_dir: str | None, *, source_language: str, target_language: str, hub: str = HUB
    ) -> None:
        if {source_language, target_language} != {"de", "en"}:
            raise ValueError(
                f"Multi30k here is German-English: task.corpus.source_language={source_language} and "
                f"target_language={target_language} must be de and en, in either order"
            )
        self.languages = (source_language, target_language)
        self._folder = None if data_dir is None else Path(data_dir).expanduser()
        self._hub = hub
        self._splits: dict[str, ParallelText] | None = None
        self.label = "Multi30k"

    def splits(self) -> dict[str, ParallelText]:
        """Return `train`, `valid`, `test` and, where its files are there, `test_2017`; read once."""
        if self._splits is None:
            self._splits = self._from_hub() if self._folder is None else self._from_folder(self._folder)
            self._check_sizes(self._splits)
        return self._splits

    def _from_folder(self, folder: Path) -> dict[str, ParallelText]:
        # A folder that holds several data sets, as a lab's data folder does, has ours under its own name.
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
                "With a network, run the command again. Without one, set data_dir=FOLDER to a folder that holds "
                "train, val and test_2016_flickr as .de and .en (plain or .gz), or the data set's train.jsonl, "
                "val.jsonl and test.jsonl, downloaded elsewhere from https://huggingface.co/datasets/"
                f"{self._hub}.",
            ) from error
        return self._rename(tables)

    def _rename(self, tables: dict[str, ParallelText]) -> dict[str, ParallelText]:
        missing = [split for split in HUB_SPLITS if split not in tables]
        if missing:
            raise ValueError(f"Multi30k tables lack {', '.join(missing)}; there are {', '.join(tables)}")
        return {ours: tables[theirs] for theirs, ours in HUB_SPLITS.items()}

    def _check_sizes(self, splits: dict[str, ParallelText]) -> None:
        """Name the text honestly: anything but the published counts is a part of Multi30k."""
        if any(len(splits[split]) != size for split, size in SIZES.items()):
            counts = "/".join(str(len(splits[split])) for split in SIZES)
            self.label = f"Multi30k, not the published split ({counts} pairs)"
