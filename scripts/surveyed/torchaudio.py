"""The models of torchaudio, with the lengths that they take."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchaudio import models

from surveyed import Subject

KIND = (
    "models, on four inputs of different lengths, with the lengths if the model accepts them. "
    "Models that accept no lengths say nothing about padding"
)
CHECKED = """\
- `Conformer`: correct, and known (pytorch/audio#4205): its convolutions and norms include
  padding.
- `Emformer` was wrongly reported as depending on other rows by an earlier version of this survey,
  which did not pass the context frames that it expects after the last frame. With them, only
  unusual values in the padding reach the last real frames."""
FRAMES, SAMPLES, WIDTH, RIGHT = 32, 3200, 16, 4
CONVOLUTIONS = [[16, 10, 5], [16, 3, 2], [16, 3, 2], [16, 2, 2]]
ENCODER = {
    **{"extractor_conv_layer_config": CONVOLUTIONS, "extractor_conv_bias": False},
    **{"encoder_embed_dim": 16, "encoder_projection_dropout": 0.0, "encoder_pos_conv_kernel": 4},
    **{"encoder_pos_conv_groups": 2, "encoder_num_layers": 2, "encoder_num_heads": 2},
    **{"encoder_attention_dropout": 0.0, "encoder_ff_interm_features": 32},
    **{"encoder_ff_interm_dropout": 0.0, "encoder_dropout": 0.0, "encoder_layer_drop": 0.0},
}


def frames(width: int = WIDTH, name: str = "input") -> dict[str, Tensor]:
    """Return frames and the number of frames in each row."""
    lengths = torch.tensor([FRAMES, 24, 16, 8])
    real = (torch.arange(FRAMES) < lengths[:, None])[..., None]
    return {name: torch.randn(4, FRAMES, width) * real, "lengths": lengths}


def samples() -> dict[str, Tensor]:
    """Return audio samples and the number of samples in each row."""
    lengths = torch.tensor([SAMPLES, 2400, 1600, 1200])
    return {
        "waveforms": torch.randn(4, SAMPLES) * (torch.arange(SAMPLES) < lengths[:, None]),
        "lengths": lengths,
    }


def conformer(**options: Any) -> tuple[nn.Module, Mapping[str, Tensor]]:
    """Return a Conformer with frames as input."""
    return models.Conformer(WIDTH, 2, 32, 2, 7, **options), frames()


def wav2vec2(mode: str, norm_first: bool) -> tuple[nn.Module, Mapping[str, Tensor]]:
    """Return a wav2vec 2.0 model with audio as input."""
    own = {"encoder_layer_norm_first": norm_first, "aux_num_out": 8}
    return models.wav2vec2_model(mode, **ENCODER, **own), samples()


def wavlm(mode: str) -> tuple[nn.Module, Mapping[str, Tensor]]:
    """Return a WavLM with audio as input."""
    own = {"encoder_layer_norm_first": False, "aux_num_out": 8}
    buckets = {"encoder_num_buckets": 16, "encoder_max_distance": 32}
    batch = {"waveforms": samples()["waveforms"]}  # its attention does not accept a mask
    return models.wavlm_model(mode, **ENCODER, **own, **buckets), batch


def transducer() -> tuple[nn.Module, Mapping[str, Tensor]]:
    """Return an Emformer transducer with frames and tokens as input."""
    model = models.emformer_rnnt_model(
        **{"input_dim": WIDTH, "encoding_dim": 16, "num_symbols": 20, "segment_length": 8},
        **{
            "right_context_length": RIGHT,
            "time_reduction_input_dim": 8,
            "time_reduction_stride": 2,
        },
        **{"transformer_num_heads": 2, "transformer_ffn_dim": 32, "transformer_num_layers": 2},
        **{"transformer_dropout": 0.0, "transformer_activation": "gelu"},
        **{"transformer_left_context_length": 8, "transformer_max_memory_size": 0},
        **{"transformer_weight_init_scale_strategy": "depthwise", "transformer_tanh_on_mem": True},
        **{"symbol_embedding_dim": 16, "num_lstm_layers": 1, "lstm_layer_norm": True},
        **{"lstm_layer_norm_epsilon": 1e-3, "lstm_dropout": 0.0},
    )
    model.forward = model.transcribe
    return Heard(model), frames()


class Heard(nn.Module):
    """A model that also takes context frames after the last one, which are zeros here."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return self.model(F.pad(input, (0, 0, 0, RIGHT)), lengths)


def tacotron(masked: bool) -> tuple[nn.Module, Mapping[str, Tensor]]:
    """Return a Tacotron 2 with tokens and a spectrogram, with or without masked padding."""
    small = {"symbol_embedding_dim": 16, "encoder_embedding_dim": 16, "decoder_rnn_dim": 16}
    small |= {"attention_rnn_dim": 16, "attention_hidden_dim": 16, "prenet_dim": 16, "n_mels": 8}
    small |= {"postnet_embedding_dim": 16, "attention_location_n_filter": 4, "n_symbol": 40}
    model = models.Tacotron2(mask_padding=masked, **small)
    lengths = torch.tensor([20, 16, 12, 8])
    tokens = torch.randint(1, 40, (4, 20)) * (torch.arange(20) < lengths[:, None])
    given = {"tokens": tokens, "token_lengths": lengths, "mel_specgram": torch.randn(4, 8, 12)}
    return model, given | {"mel_specgram_lengths": torch.tensor([12, 12, 12, 12])}


def separator() -> tuple[nn.Module, Mapping[str, Tensor]]:
    """Return a Conv-TasNet with audio as input."""
    small = {"enc_num_feats": 16, "msk_num_feats": 8, "msk_num_hidden_feats": 16}
    model = models.ConvTasNet(msk_num_layers=2, msk_num_stacks=2, **small)
    return model, {"input": torch.randn(4, 1, 800)}


def recurrent() -> tuple[nn.Module, Mapping[str, Tensor]]:
    """Return a WaveRNN with audio and its spectrogram as input."""
    small = {"n_rnn": 16, "n_fc": 16, "n_freq": 8, "n_hidden": 16, "n_output": 16}
    model = models.WaveRNN([2, 2, 2], 16, 8, n_res_block=2, **small)
    return model, {"waveform": torch.randn(4, 1, 64), "specgram": torch.randn(4, 1, 8, 12)}


MODELS: dict[str, Callable[[], tuple[nn.Module, Mapping[str, Tensor]]]] = {
    "Conformer": conformer,
    "Conformer(use_group_norm)": lambda: conformer(use_group_norm=True),
    "Conformer(convolution_first)": lambda: conformer(convolution_first=True),
    "ConvTasNet": separator,
    "DeepSpeech": lambda: (models.DeepSpeech(16, 16, 8), {"x": torch.randn(4, 1, 32, 16)}),
    "Emformer": lambda: (
        Heard(
            models.Emformer(WIDTH, 2, 32, 2, 8, left_context_length=8, right_context_length=RIGHT)
        ),
        frames(),
    ),
    "Emformer(max_memory_size)": lambda: (
        Heard(models.Emformer(WIDTH, 2, 32, 2, 8, max_memory_size=2, right_context_length=RIGHT)),
        frames(),
    ),
    "HDemucs": lambda: (
        models.HDemucs(["drums", "rest"], channels=4, nfft=1024, depth=5),
        {"input": torch.randn(4, 2, 16384)},
    ),
    "RNNT(emformer)": transducer,
    "SquimObjective": lambda: (
        models.squim_objective_model(16, 16, 16, 4, 8, 2, "LSTM", 71, None),
        {"x": torch.randn(4, 4000)},
    ),
    "Tacotron2": lambda: tacotron(False),
    "Tacotron2(mask_padding)": lambda: tacotron(True),
    "Wav2Letter": lambda: (models.Wav2Letter(8, "mfcc", 16), {"x": torch.randn(4, 16, 64)}),
    "Wav2Vec2Model(group_norm)": lambda: wav2vec2("group_norm", False),
    "Wav2Vec2Model(layer_norm)": lambda: wav2vec2("layer_norm", True),
    "WavLM(group_norm)": lambda: wavlm("group_norm"),
    "WavLM(layer_norm)": lambda: wavlm("layer_norm"),
    "WaveRNN": recurrent,
}


def classes() -> list[str]:
    """Return the names of the models."""
    return list(MODELS)


def subject(name: str) -> Subject:
    """Return a model and inputs for it."""
    torch.manual_seed(0)
    model, batch = MODELS[name]()
    size = batch.get("lengths")
    return Subject(model.eval(), [batch], {"max_positions": SAMPLES} if size is not None else {})
