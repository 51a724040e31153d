"""The programs that are measured, in the order of their turns, and those that are not."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["training", "decoding"]


@dataclass(frozen=True)
class Entry:
    """One program in one setting.

    Attributes:
        environment: the virtual environment it runs in; `normlab` is the one of this process.
        module: its runner, of this package.
    """

    name: str
    kind: Kind
    environment: str
    module: str
    precision: str


# Ratios are taken to the first of each kind that is there.
ENTRIES = (
    Entry("fairseq fp32", "training", "fairseq", "train_fairseq", "fp32"),
    Entry("fairseq oneDNN fp32", "training", "fairseq", "train_fairseq", "oneDNN fp32"),
    Entry("Hugging Face fp32", "training", "hugging_face", "train_hugging_face", "fp32"),
    Entry("Hugging Face bf16", "training", "hugging_face", "train_hugging_face", "bf16"),
    Entry("eole fp32", "training", "eole", "train_eole", "fp32"),
    Entry("eole bf16", "training", "eole", "train_eole", "bf16"),
    Entry("JoeyNMT fp32", "training", "joeynmt", "train_joeynmt", "fp32"),
    Entry("normlab fp32", "training", "normlab", "train_normlab", "fp32"),
    Entry("normlab bf16", "training", "normlab", "train_normlab", "bf16"),
    Entry("fairseq fp32", "decoding", "fairseq", "decode_fairseq", "fp32"),
    Entry("Hugging Face fp32", "decoding", "hugging_face", "decode_hugging_face", "fp32"),
    Entry("Hugging Face bf16", "decoding", "hugging_face", "decode_hugging_face", "bf16"),
    Entry("eole fp32", "decoding", "eole", "decode_eole", "fp32"),
    Entry("CTranslate2 fp32", "decoding", "ctranslate2", "decode_ctranslate2", "fp32"),
    Entry("CTranslate2 int8", "decoding", "ctranslate2", "decode_ctranslate2", "int8"),
    Entry("normlab fp32", "decoding", "normlab", "decode_normlab", "fp32"),
    Entry("normlab bf16", "decoding", "normlab", "decode_normlab", "bf16"),
)
OWN = ("normlab fp32", "normlab bf16")  # what ratios are taken to, besides the first entry
LEFT_OUT = {
    "OpenNMT-py 3.5.1": "needs torch below 2.3; eole is its successor",
}
