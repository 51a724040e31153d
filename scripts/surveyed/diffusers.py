"""Models of diffusers with small configs, on four noisy images and texts of different lengths."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import diffusers
import torch
from torch import Tensor

from surveyed import Subject

KIND = (
    "models, on four images, videos or sounds; models that take texts get four of different "
    "lengths and, if they accept one, the mask. The question is whether the other rows, or the "
    "padding of a text, change the output"
)
CHECKED = ""
TEXT, LENGTHS = 24, (24, 16, 12, 8)
BLOCKS = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D")}
BLOCKS |= {"up_block_types": ("AttnUpBlock2D", "UpBlock2D"), "block_out_channels": (16, 32)}
CROSS = {"down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D")}
CROSS |= {"up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"), "block_out_channels": (16, 32)}
NORM = {"norm_num_groups": 8, "layers_per_block": 1}
HEADS = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2}
WHOLE = {"block_out_channels": (16, 32), "norm_num_groups": 8, "layers_per_block": 1}
WHOLE |= {"down_block_types": ("DownEncoderBlock2D",) * 2, "latent_channels": 4}
WHOLE |= {"up_block_types": ("UpDecoderBlock2D",) * 2}


class Small(NamedTuple):
    """A model's config, its inputs by shape, and the name of the input that masks a text."""

    config: Mapping[str, Any]
    inputs: Mapping[str, tuple[int, ...] | str]
    mask: str = ""


IMAGE, TIME = (4, 16, 16), "time"
TEXTS = {"encoder_hidden_states": (TEXT, 32)}
MASKED = {"encoder_attention_mask": "mask"}
LATENT = {"hidden_states": IMAGE, "timestep": TIME}
MASK = "encoder_attention_mask"
MODELS = {
    "AutoencoderKL": Small(WHOLE, {"sample": (3, 32, 32)}),
    "AsymmetricAutoencoderKL": Small(
        {
            **{k: v for k, v in WHOLE.items() if "block" not in k},
            **{"down_block_types": ("DownEncoderBlock2D",) * 2},
            **{"up_block_types": ("UpDecoderBlock2D",) * 2},
            **{"down_block_out_channels": (16, 32), "up_block_out_channels": (16, 32)},
            **{"layers_per_down_block": 1, "layers_per_up_block": 1},
        },
        {"sample": (3, 32, 32)},
    ),
    "AutoencoderTiny": Small(
        {
            "encoder_block_out_channels": (16, 16),
            "decoder_block_out_channels": (16, 16),
            "num_encoder_blocks": (1, 2),
            "num_decoder_blocks": (2, 1),
        },
        {"sample": (3, 32, 32)},
    ),
    "AutoencoderOobleck": Small(
        {
            **{"encoder_hidden_size": 12, "decoder_channels": 12, "decoder_input_channels": 6},
            **{"channel_multiples": [1, 2], "downsampling_ratios": [2, 4], "audio_channels": 2},
        },
        {"sample": (2, 64)},
    ),
    "AutoencoderKLTemporalDecoder": Small(
        {
            **{"block_out_channels": (32, 64), "layers_per_block": 1, "latent_channels": 4},
            **{"down_block_types": ("DownEncoderBlock2D",) * 2},
        },
        {"sample": (3, 32, 32), "num_frames": "one"},
    ),
    "AutoencoderKLWan": Small(
        {"base_dim": 8, "z_dim": 4, "num_res_blocks": 1, "dim_mult": [1, 2, 2, 2]},
        {"sample": (3, 5, 16, 16)},
    ),
    "AutoencoderDC": Small(
        {
            **{"latent_channels": 4, "attention_head_dim": 8, "encoder_layers_per_block": (1, 1)},
            **{"encoder_block_types": ("ResBlock", "EfficientViTBlock")},
            **{"decoder_block_types": ("ResBlock", "EfficientViTBlock")},
            **{"encoder_block_out_channels": (8, 16), "decoder_block_out_channels": (8, 16)},
            **{"encoder_qkv_multiscales": ((), (5,)), "decoder_qkv_multiscales": ((), (5,))},
            **{"decoder_layers_per_block": (1, 1), "decoder_norm_types": "rms_norm"},
            **{"decoder_act_fns": "silu", "upsample_block_type": "interpolate"},
        },
        {"sample": (3, 32, 32)},
    ),
    "VQModel": Small({**WHOLE, "num_vq_embeddings": 32}, {"sample": (3, 32, 32)}),
    "UNet1DModel": Small(
        {
            **{"block_out_channels": (32, 64), "in_channels": 6, "out_channels": 6},
            **{"down_block_types": ("DownBlock1DNoSkip", "DownBlock1D"), "extra_in_channels": 64},
            **{"up_block_types": ("UpBlock1D", "UpBlock1DNoSkip"), "sample_size": 32},
        },
        {"sample": (6, 32), "timestep": TIME},
    ),
    "UNet2DModel": Small(
        {**BLOCKS, **NORM, "sample_size": 16, "attention_head_dim": 8},
        {"sample": (3, 16, 16), "timestep": TIME},
    ),
    "UNet2DConditionModel": Small(
        {**CROSS, **NORM, "sample_size": 16, "attention_head_dim": 8, "cross_attention_dim": 32},
        {**TEXTS, **MASKED, "sample": IMAGE, "timestep": TIME},
        MASK,
    ),
    "UNet3DConditionModel": Small(
        {
            **{"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8},
            **{"down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D")},
            **{"up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"), "attention_head_dim": 8},
            **{"cross_attention_dim": 32, "sample_size": 16},
        },
        {**TEXTS, "sample": (4, 3, 16, 16), "timestep": TIME},
    ),
    "ControlNetModel": Small(
        {
            **{k: v for k, v in CROSS.items() if "up" not in k},
            **{"block_out_channels": (16, 32), "conditioning_embedding_out_channels": (8, 16)},
            **NORM,
            **{"attention_head_dim": 8, "cross_attention_dim": 32},
        },
        {
            **TEXTS,
            "sample": IMAGE,
            "timestep": TIME,
            "controlnet_cond": (3, 32, 32),
        },
    ),
    "Transformer2DModel": Small(
        {**HEADS, "in_channels": 16, "norm_num_groups": 8, "cross_attention_dim": 32},
        {**TEXTS, **MASKED, "hidden_states": (16, 8, 8)},
        MASK,
    ),
    "DiTTransformer2DModel": Small(
        {**HEADS, "in_channels": 4, "sample_size": 16, "norm_num_groups": 8},
        {**LATENT, "class_labels": "class"},
    ),
    "PixArtTransformer2DModel": Small(
        {
            **{**HEADS, "in_channels": 4, "out_channels": 8, "sample_size": 16},
            **{"cross_attention_dim": 32, "caption_channels": 32, "norm_num_groups": 8},
            **{"use_additional_conditions": False},
        },
        {**TEXTS, **MASKED, **LATENT},
        MASK,
    ),
    "SD3Transformer2DModel": Small(
        {
            **{**HEADS, "in_channels": 4, "out_channels": 4, "sample_size": 16},
            **{"joint_attention_dim": 32, "caption_projection_dim": 32, "pos_embed_max_size": 16},
            **{"pooled_projection_dim": 32},
        },
        {**TEXTS, **LATENT, "pooled_projections": (32,)},
    ),
    "FluxTransformer2DModel": Small(
        {
            **{"num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16},
            **{"num_attention_heads": 2, "in_channels": 4, "joint_attention_dim": 32},
            **{"pooled_projection_dim": 32, "axes_dims_rope": (4, 4, 8)},
        },
        {
            **TEXTS,
            "hidden_states": (64, 4),
            "timestep": TIME,
            "pooled_projections": (32,),
            "img_ids": "ids of 64",
            "txt_ids": f"ids of {TEXT}",
        },
    ),
    "QwenImageTransformer2DModel": Small(
        {
            **{"num_layers": 2, "attention_head_dim": 16, "num_attention_heads": 2},
            **{"in_channels": 16, "out_channels": 4, "joint_attention_dim": 32},
            **{"axes_dims_rope": (8, 4, 4)},
        },
        {
            **TEXTS,
            "encoder_hidden_states_mask": "mask",
            "hidden_states": (64, 16),
            "timestep": TIME,
            "img_shapes": "shapes",
        },
        "encoder_hidden_states_mask",
    ),
    "SanaTransformer2DModel": Small(
        {
            **{**HEADS, "in_channels": 4, "out_channels": 4, "sample_size": 16},
            **{"num_cross_attention_heads": 2, "cross_attention_head_dim": 16},
            **{"cross_attention_dim": 32, "caption_channels": 32, "patch_size": 1},
        },
        {**TEXTS, **MASKED, **LATENT},
        MASK,
    ),
    "AuraFlowTransformer2DModel": Small(
        {
            **{"num_mmdit_layers": 1, "num_single_dit_layers": 1, "attention_head_dim": 16},
            **{"num_attention_heads": 2, "in_channels": 4, "out_channels": 4},
            **{"caption_projection_dim": 32, "joint_attention_dim": 32, "sample_size": 16},
            **{"pos_embed_max_size": 256},
        },
        {**TEXTS, **LATENT},
    ),
    "Lumina2Transformer2DModel": Small(
        {
            **{"sample_size": 16, "in_channels": 4, "hidden_size": 32, "num_layers": 1},
            **{"num_refiner_layers": 1, "num_attention_heads": 2, "num_kv_heads": 1},
            **{"axes_dim_rope": (4, 4, 8), "axes_lens": (64, 32, 32), "cap_feat_dim": 32},
        },
        {**TEXTS, **MASKED, **LATENT},
        MASK,
    ),
    "CogVideoXTransformer3DModel": Small(
        {
            **{**HEADS, "in_channels": 4, "out_channels": 4, "time_embed_dim": 8},
            **{"text_embed_dim": 32, "sample_width": 8, "sample_height": 8, "sample_frames": 5},
            **{"max_text_seq_length": TEXT},
        },
        {**TEXTS, "hidden_states": (2, 4, 8, 8), "timestep": TIME},
    ),
    "WanTransformer3DModel": Small(
        {
            **{**HEADS, "in_channels": 4, "out_channels": 4, "text_dim": 32, "freq_dim": 32},
            **{"ffn_dim": 32, "cross_attn_norm": True, "rope_max_seq_len": 32},
        },
        {**TEXTS, "hidden_states": (4, 2, 8, 8), "timestep": TIME},
    ),
    "LTXVideoTransformer3DModel": Small(
        {
            **{**HEADS, "in_channels": 4, "out_channels": 4, "cross_attention_dim": 32},
            **{"caption_channels": 32},
        },
        {
            **TEXTS,
            **MASKED,
            "hidden_states": (32, 4),
            "timestep": TIME,
            "num_frames": "two",
            "height": "four",
            "width": "four",
        },
        MASK,
    ),
    "MochiTransformer3DModel": Small(
        {
            **{**HEADS, "in_channels": 4, "pooled_projection_dim": 16, "text_embed_dim": 32},
            **{"time_embed_dim": 4, "max_sequence_length": TEXT},
        },
        {**TEXTS, **MASKED, "hidden_states": (4, 2, 8, 8), "timestep": TIME},
        MASK,
    ),
    "LatteTransformer3DModel": Small(
        {
            **{**HEADS, "in_channels": 4, "out_channels": 8, "sample_size": 8, "patch_size": 2},
            **{"cross_attention_dim": 32, "caption_channels": 32, "video_length": 2},
        },
        {**TEXTS, **MASKED, "hidden_states": (4, 2, 8, 8), "timestep": TIME},
        MASK,
    ),
    "AllegroTransformer3DModel": Small(
        {
            **{**HEADS, "attention_head_dim": 24, "in_channels": 4, "out_channels": 4},
            **{"cross_attention_dim": 48, "caption_channels": 32, "sample_width": 8},
            **{"sample_height": 8, "sample_frames": 2, "norm_elementwise_affine": False},
        },
        {**TEXTS, **MASKED, "hidden_states": (4, 2, 8, 8), "timestep": TIME},
        MASK,
    ),
    "StableAudioDiTModel": Small(
        {
            **{"sample_size": 16, "in_channels": 4, "num_layers": 2, "attention_head_dim": 16},
            **{"num_attention_heads": 2, "num_key_value_attention_heads": 1, "out_channels": 4},
            **{"cross_attention_dim": 32, "time_proj_dim": 16, "global_states_input_dim": 16},
            **{"cross_attention_input_dim": 32},
        },
        {
            **TEXTS,
            "encoder_attention_mask": "bool",
            "hidden_states": (4, 16),
            "timestep": TIME,
            "global_hidden_states": (1, 16),
            "rotary_embedding": "rotary",
        },
        MASK,
    ),
    "PriorTransformer": Small(
        {**HEADS, "embedding_dim": 32, "num_embeddings": TEXT, "additional_embeddings": 4},
        {
            **TEXTS,
            "attention_mask": "mask",
            "hidden_states": (32,),
            "timestep": TIME,
            "proj_embedding": (32,),
        },
        "attention_mask",
    ),
    "UVit2DModel": Small(
        {
            **{"hidden_size": 32, "cond_embed_dim": 32, "num_hidden_layers": 1},
            **{"num_attention_heads": 2, "intermediate_size": 32, "block_out_channels": 16},
            **{"block_num_heads": 2, "in_channels": 16, "vocab_size": 33, "codebook_size": 32},
            **{"micro_cond_encode_dim": 8, "micro_cond_embed_dim": 40},
            **{"encoder_hidden_size": 32, "sample_size": 8},
        },
        {
            **TEXTS,
            "input_ids": "tokens",
            "pooled_text_emb": (32,),
            "micro_conds": (5,),
        },
    ),
}


def classes() -> list[str]:
    """Return the names of the models."""
    return list(MODELS)


def value(what: Any) -> Any:
    """Return an input, given its shape for one row or its kind."""
    if isinstance(what, tuple):
        return torch.randn(4, *what)
    real: Tensor = torch.arange(TEXT) < torch.tensor(LENGTHS)[:, None]
    if what.startswith("ids of"):
        return torch.arange(int(what[6:]))[:, None].expand(-1, 3).float()
    made = {
        **{
            "mask": real.long(),
            "bool": real,
            "time": torch.tensor([3, 200, 500, 900]),
            "one": 1,
            "two": 2,
        },
        **{"four": 4, "class": torch.arange(4), "shapes": [[(1, 8, 8)]] * 4},
        **{"rotary": (torch.ones(17, 8), torch.zeros(17, 8))},
        **{"tokens": torch.randint(0, 32, (4, 8, 8))},
    }
    return made[what]


def subject(name: str) -> Subject:
    """Return a small model and four rows."""
    small = MODELS[name]
    torch.manual_seed(0)
    model = getattr(diffusers, name)(**small.config).eval()
    batch = {key: value(what) for key, what in small.inputs.items()}
    if small.mask:
        real = batch[small.mask][..., None]
        batch["encoder_hidden_states"] = batch["encoder_hidden_states"] * real
    rows = {"mask": small.mask} if small.mask else {}
    return Subject(model, [batch], {"causal": False, **rows})
