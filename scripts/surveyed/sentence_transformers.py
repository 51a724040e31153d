"""Modules of sentence-transformers on embedded tokens, and whole encoders with pooling."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from sentence_transformers.sentence_transformer import modules as dense
from sentence_transformers.sparse_encoder import modules as sparse
from torch import Tensor, nn

from normlab.any_model.loading.tiny import LENGTHS, VOCABULARY, mask_of, small_models
from surveyed import Subject

KIND = (
    "modules and encoders, with four sentences of different lengths and their mask. A module that "
    "needs tokens gets them from an embedding; an encoder is a small model of transformers, "
    "followed by a pooling"
)
CHECKED = ""
WIDTH = 8
ENCODERS = ("BertModel", "DistilBertModel", "MPNetModel", "RobertaModel", "XLMRobertaModel")
ENCODERS += ("ModernBertModel", "AlbertModel", "ElectraModel", "T5EncoderModel", "Qwen3Model")
MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
MODULES: dict[str, Callable[[], list[nn.Module]]] = {
    **{f"Pooling({mode})": (lambda mode=mode: [dense.Pooling(WIDTH, mode)]) for mode in MODES},
    "CNN": lambda: [dense.CNN(WIDTH, 8)],
    "CNN, Pooling(mean)": lambda: [dense.CNN(WIDTH, 8), dense.Pooling(24, "mean")],
    "LSTM": lambda: [dense.LSTM(WIDTH, 8)],
    "LSTM, Pooling(max)": lambda: [dense.LSTM(WIDTH, 8), dense.Pooling(16, "max")],
    "WeightedLayerPooling": lambda: [dense.WeightedLayerPooling(WIDTH, 2, 1)],
    "Pooling(mean), Dense": lambda: [dense.Pooling(WIDTH, "mean"), dense.Dense(WIDTH, 4)],
    "Pooling(mean), LayerNorm": lambda: [dense.Pooling(WIDTH, "mean"), dense.LayerNorm(WIDTH)],
    "Pooling(mean), Normalize": lambda: [dense.Pooling(WIDTH, "mean"), dense.Normalize()],
    "Pooling(mean), Dropout": lambda: [dense.Pooling(WIDTH, "mean"), dense.Dropout()],
    "Pooling(mean), SparseAutoEncoder": lambda: [
        dense.Pooling(WIDTH, "mean"),
        sparse.SparseAutoEncoder(WIDTH, 16, 4, 8),
    ],
    "WordWeights, Pooling(mean)": lambda: [
        dense.WordWeights([str(n) for n in range(VOCABULARY)], {"3": 0.5, "7": 2.0}),
        dense.Pooling(WIDTH, "mean"),
    ],
    "SpladePooling(max)": lambda: [sparse.SpladePooling("max")],
    "SpladePooling(sum)": lambda: [sparse.SpladePooling("sum")],
}


def classes() -> list[str]:
    """Return the names of the modules, and of the encoders, one per kind of pooling."""
    return [
        *MODULES,
        *(f"{name}, Pooling({mode})" for name in ENCODERS for mode in ("cls", "mean")),
    ]


class Sentences(nn.Module):
    """Modules run in order on embedded tokens; the output is what they add to the features."""

    def __init__(self, *inner: nn.Module, logits: bool = False):
        super().__init__()
        self.embed, self.inner = nn.Embedding(VOCABULARY, WIDTH), nn.ModuleList(inner)
        self.logits = logits

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        x = self.embed(input_ids)
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        features |= {"token_embeddings": x, "sentence_lengths": attention_mask.sum(1).cpu()}
        features["token_weights_sum"] = attention_mask.sum(1)
        features["all_layer_embeddings"] = [x, x + 1, 2 * x]
        first = dict(features)
        for module in self.inner:
            features = module(features)
        changed = {k: v for k, v in features.items() if v is not first.get(k)}
        return {k: v for k, v in changed.items() if torch.is_tensor(v)}


class Encoder(nn.Module):
    """A model of transformers, followed by a pooling."""

    def __init__(self, model: nn.Module, pooling: nn.Module):
        super().__init__()
        self.model, self.pooling = model, pooling

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        features = self.pooling(self.model(features))
        return features["sentence_embedding"]


def encoder(name: str, mode: str) -> nn.Module:
    """Return sentence-transformers' own encoder around a small model, which is saved first."""
    model = next(small_models(name))
    with tempfile.TemporaryDirectory() as folder:
        words = [
            "[PAD]",
            "[UNK]",
            "[CLS]",
            "[SEP]",
            "[MASK]",
            *(f"w{n}" for n in range(VOCABULARY - 5)),
        ]
        (Path(folder) / "vocab.txt").write_text("\n".join(words))
        model.save_pretrained(folder)
        transformers.BertTokenizer(str(Path(folder) / "vocab.txt")).save_pretrained(folder)
        loaded = dense.Transformer(folder)
    width = loaded.get_word_embedding_dimension()
    return Encoder(loaded, dense.Pooling(width, mode))


def subject(name: str) -> Subject:
    """Return modules or an encoder, with four sentences as input."""
    torch.manual_seed(0)
    mask = mask_of(LENGTHS)
    batch = {
        "input_ids": torch.randint(10, VOCABULARY - 20, mask.shape) * mask,
        "attention_mask": mask,
    }
    if name in MODULES:
        model = Sentences(*MODULES[name]())
        if "Splade" in name:
            model.embed = nn.Embedding(VOCABULARY, WIDTH)
    else:
        head, _, rest = name.partition(", Pooling(")
        model = encoder(head, rest.removesuffix(")"))
    return Subject(model.eval(), [batch])
