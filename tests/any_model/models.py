"""Small, correct models of well-known families, with batches that fit them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import (
    ConvNextConfig,
    ConvNextModel,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    ResNetConfig,
    ResNetModel,
    T5Config,
    T5Model,
    ViTConfig,
    ViTModel,
)

from tests.any_model.pairs import (
    NOT_CAUSAL,
    WIDTH,
    Case,
    bert,
    gpt2,
    see,
    text_batches,
    texts,
    train,
)

DECODER = {
    "vocab_size": 256,
    "hidden_size": WIDTH,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "pad_token_id": 0,
    "eos_token_id": 0,
}
IMAGES = {"image_size": 32, "patch_size": 8, "num_channels": 3}


class PackedLSTM(nn.Module):
    """A bidirectional LSTM over the real tokens of each row."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.lstm = nn.LSTM(WIDTH, 8, 2, batch_first=True, bidirectional=True)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        lengths = attention_mask.sum(1).cpu()
        packed = pack_padded_sequence(self.embed(input_ids), lengths, True, enforce_sorted=False)
        length = input_ids.shape[1]
        return pad_packed_sequence(self.lstm(packed)[0], True, total_length=length)[0]


class TorchEncoder(nn.Module):
    """`nn.TransformerEncoder` with its fast path in evaluation mode."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
        self.embed = nn.Embedding(256, WIDTH)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.encoder(self.embed(input_ids), src_key_padding_mask=attention_mask == 0)


def images() -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [{"pixel_values": torch.randn(4, 3, 32, 32, generator=generator)} for _ in range(2)]


def bert_in_bfloat16() -> Case:
    return Case(bert().to(torch.bfloat16), text_batches())


def language_model(build: Callable[[], nn.Module]) -> Case:
    """Return a causal language model after a few training steps on text."""
    return Case(train(build(), text_batches(), 10), text_batches(), {"causal": True})


def t5() -> Case:
    sizes = {"d_model": WIDTH, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    model = T5Model(T5Config(vocab_size=256, **sizes, decoder_start_token_id=0))
    extra = {"decoder_input_ids": texts(length=6)[0]}
    return Case(model, [batch | extra for batch in text_batches()])


def resnet() -> Case:
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    return Case(see(ResNetModel(config), images()), images())


def vit() -> Case:
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2}
    return Case(ViTModel(ViTConfig(**IMAGES, **sizes, intermediate_size=32)), images())


def convnext() -> Case:
    config = ConvNextConfig(hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], patch_size=2)
    return Case(ConvNextModel(config), images())


MODELS: dict[str, Callable[[], Case]] = {
    "BERT in bfloat16": bert_in_bfloat16,
    "GPT-2": lambda: language_model(gpt2),
    "Llama": lambda: language_model(lambda: LlamaForCausalLM(LlamaConfig(**DECODER))),
    "OLMo 2": lambda: language_model(lambda: Olmo2ForCausalLM(Olmo2Config(**DECODER))),
    "Qwen 3": lambda: language_model(lambda: Qwen3ForCausalLM(Qwen3Config(**DECODER))),
    "Gemma 3": lambda: language_model(lambda: Gemma3ForCausalLM(Gemma3TextConfig(**DECODER))),
    "T5": t5,
    "ViT": vit,
    "ResNet": resnet,
    "ConvNeXt": convnext,
    "nn.TransformerEncoder": lambda: Case(TorchEncoder(), text_batches(), NOT_CAUSAL),
    "packed LSTM": lambda: Case(PackedLSTM(), text_batches()),
}


def sound(name: str) -> Case:
    """Build a correct model from a fixed seed."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        built = MODELS[name]()
    return built._replace(model=built.model.eval())
