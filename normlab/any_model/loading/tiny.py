"""Builds small transformers models with random weights, given a class or model type."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, Literal, get_args

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from normlab.errors import UserError

PARAMETERS = 60_000_000
VOCABULARY, LENGTHS = 200, (32, 24, 16, 8)
MASKS = ("attention_mask", "padding_mask", "input_features_mask", "feature_attention_mask")
AUDIO = ("input_values", "input_features")

# Small values for the numbers in a config, with a pattern for their names. The first pattern that
# matches is used, and None keeps the value.
SMALL_SIZES: tuple[tuple[str, int | None], ...] = (
    (r".*(token_id|index|image|patch|window|kernel|stride|bins?|channels|rate|ratio)s?", None),
    (r".*(image_size|patch_size|kernel_size|window_size|group_size|groups|factor|labels)", None),
    (r".*(experts_per_tok(en)?|top_?k(_experts|_group)?|moe_k|moe_topk|topk_group)", 2),
    (r"n_group|.*shared_experts?|first_k_dense_replace", 1),
    (r".*(experts|expert_num)", 4),
    (r".*(key_value|kv|query_groups|num_k|num_key).*(heads?|groups)", 2),
    (r".*heads?", 4),
    (r".*(layer|block)s?|depth|.*_depth|num_stages|n_layer", 2),
    (r"rotary_dim|rotary_ndims", 4),
    (r".*(head_dim|d_kv|d_head|key_dim|value_dim|qk_.*dim|dim_head|head_width|attention_size)", 8),
    (r".*(rank|index_topk)", 8),
    (r".*(intermediate|ffn|feedforward|feed_forward|d_ff|d_inner|inner_dim|mlp_dim|ff_dim).*", 48),
    (r".*vocab_size.*", VOCABULARY),
    (r".*(hidden_size|hidden_dim|d_model|n_embd|embed_dim|emb_dim|embedding_size).*", 32),
    (r".*(model_dim|projection_dim|proj_dim|output_dim|width|dim|size)", 32),
    (r".*(position_embeddings|positions|n_ctx|seq_len.*|max_length)", 512),
)
WIDTHS = (8, 32, 48)

Shrinking = Literal["all", "heads", "eighth", "depth"]
BUILDS: tuple[Shrinking, ...] = get_args(Shrinking)
"""The ways to shrink a config, in the order in which they are tried.

`all` shrinks all sizes, `heads` does so but uses two heads of a common width, `eighth` divides
widths by 8 and keeps all heads, and `depth` shrinks the depth, the vocabulary and other numbers,
but neither widths nor heads.
"""

WIDE_HEAD = 128

TWO_HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": 2 * WIDE_HEAD}


def tiny_model(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return a tiny model of the named class or model type, and inputs that fit it.

    Raises UserError with the reason for the first failure if none fit.
    """
    reasons = []
    name = class_named(name)
    try:
        for model in small_models(name):
            try:
                return model, fitting_inputs(model)
            except UserError as error:
                reasons.append(str(error))
    except UserError as error:
        reasons.append(str(error))
    raise UserError(reasons[0])


def class_named(name: str) -> str:
    """Return the name of a class, given its name or a model type such as `bert`.

    For a model type, this is its base class.

    Raises UserError if transformers has no such class or model type.
    """
    kind = MODEL_MAPPING_NAMES.get(name, name)
    kind = kind if isinstance(kind, str) else kind[0]
    if not hasattr(transformers, kind):
        raise UserError(f"transformers has no class or model type {name!r}")
    return kind


def small_models(name: str) -> Iterator[nn.Module]:
    """Yield a small model of the class for each way in which its config can be shrunk.

    Raises UserError when there are no more ways.
    """
    cls = getattr(transformers, name)
    reasons = []
    for how in BUILDS:
        try:
            model = _built(cls, how)
        except Exception as error:  # transformers raises exceptions of any class
            reasons.append(f"{how}: {message_with_type(error)}")
            continue
        yield model
    raise UserError("; ".join(reasons) or "no input fits")


def _built(cls: Any, how: Shrinking) -> nn.Module:
    """Return a small model with random weights. Raise UserError if it is still too large."""
    config = cls.config_class(**small_settings(cls.config_class, how))
    with torch.device("meta"):
        size = sum(p.numel() for p in cls(config).parameters())
    if size > PARAMETERS:
        raise UserError(f"{size / 1e6:.0f} M parameters")
    torch.manual_seed(0)
    return cls(config).float().eval()


def fitting_inputs(model: nn.Module) -> dict[str, Tensor]:
    """Return the first inputs that the model can run. Raise UserError if there are none."""
    errors = []
    for batch in candidate_inputs(model):
        try:
            with torch.no_grad():
                model(**batch)
            return batch
        except Exception as error:
            errors.append(message_with_type(error))
    raise UserError(f"no input fits: {errors[0] if errors else 'none is known'}")


def candidate_inputs(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Yield inputs that may fit a model, with the mask that its `forward` takes."""
    names = list(inspect.signature(model.forward).parameters)
    generator = torch.Generator().manual_seed(1)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    def tokens() -> Tensor:
        ids = torch.randint(10, VOCABULARY - 20, (len(LENGTHS), max(LENGTHS)), generator=generator)
        return ids * mask_of(LENGTHS)

    if "pixel_values" in names and "input_ids" not in names:
        yield {"pixel_values": noise(3, 3, *[getattr(model.config, "image_size", None) or 224] * 2)}
        return
    if not (mask := next((m for m in MASKS if m in names), "")):
        return
    later: dict[str, Tensor] = {}
    if "decoder_input_ids" in names:
        later["decoder_input_ids"] = tokens()[:, :7].clamp(min=10)
    if audio := next((key for key in AUDIO if key in names), None):
        yield from _audio_inputs(model, audio, mask, later, noise)
    if "input_ids" in names:
        text = {"input_ids": tokens(), mask: mask_of(LENGTHS)} | later
        yield text
        if "pixel_values" in names:
            vision = getattr(model.config, "vision_config", model.config)
            size = getattr(vision, "image_size", 224)
            yield text | {"pixel_values": noise(len(LENGTHS), 3, size, size)}


def _audio_inputs(
    model: nn.Module,
    audio: str,
    mask: str,
    later: dict[str, Tensor],
    noise: Callable[..., Tensor],
) -> Iterator[dict[str, Tensor]]:
    for scale in (1, 4, 16, 640, 1024 / 32):  # for frames, raw samples (640) and 1024 frames
        frames = mask_of(tuple(int(scale * n + 0.5) for n in LENGTHS))
        if scale == 640:
            batch = {audio: noise(*frames.shape) * frames, mask: frames}
            yield batch | later
            yield batch | {audio: batch[audio][:, None]}
            continue
        for width in widths(model):
            batch = {audio: noise(*frames.shape, width) * frames[:, :, None], mask: frames}
            for features in (batch, batch | {audio: batch[audio].mT.contiguous()}):
                yield features | later


def widths(model: nn.Module) -> list[int]:
    """Return possible numbers of features per frame, the likeliest first."""
    names = ("num_mel_bins", "feature_size", "input_dim", "input_size", "input_feat_per_channel")
    bins = [getattr(model.config, name, None) for name in (*names, "feature_projection_input_dim")]
    return list(dict.fromkeys(b for b in (*bins, 80, 128, 160, 64, 320, 560) if type(b) is int))


def mask_of(lengths: tuple[int, ...]) -> Tensor:
    """Return a mask [rows, positions] that is 1 where a token is real."""
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


def small_settings(
    config: Any, how: Shrinking, changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return settings that make a config class and its nested configs small.

    `changes` are values that replace the defaults of the class before they are shrunk.
    """
    values = {f.name: f.default for f in fields(config) if f.default is not MISSING}
    for field in fields(config):
        if field.default_factory is not MISSING:
            values[field.name] = field.default_factory()
    settings = {}
    for name, value in (values | dict(changes or {})).items():
        small = small_value(name, value, how)
        if small != value or name in (changes or {}):
            settings[name] = small
    for name, spec in config.sub_configs_defaults.items():
        inner = spec.config_class
        if not hasattr(inner, "sub_configs_defaults"):  # AutoConfig
            inner = CONFIG_MAPPING[spec.model_type]
        settings[name] = small_settings(inner, how, spec.init_kwargs)
        if inner.model_type:
            settings[name].setdefault("model_type", inner.model_type)
    return settings


def small_value(name: str, value: Any, how: Shrinking) -> Any:
    """Return the small value for a config entry. `how` says what is shrunk (see `BUILDS`)."""
    if isinstance(value, float) and "drop" in name:
        return 0.0
    if name in ("apply_spec_augment", "use_cache"):
        return False
    if value is None:
        return {"vocab_size": VOCABULARY, "head_dim": WIDE_HEAD if how == "heads" else 8}.get(name)
    if name.endswith("token_id") and isinstance(value, int):
        return value % VOCABULARY
    if isinstance(value, tuple | list) and name in ("conv_dim", "tdnn_dim") and how == "all":
        return type(value)(32 for _ in value)
    if type(value) is not int or value <= 0:
        return value
    if how == "heads" and name in TWO_HEADS:
        return TWO_HEADS[name]
    small = next((size for name_, size in SMALL_SIZES if re.fullmatch(name_, name)), None)
    if small is None or value <= small:
        return value
    if how in ("eighth", "depth") and (small in WIDTHS or "head" in name):
        shrinks = how == "eighth" and small in WIDTHS and value % 8 == 0
        return value // 8 if shrinks else value
    return value if how == "heads" and small == 8 else small


def message_with_type(error: BaseException) -> str:
    """Return an exception's type and the first line of its message."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:120] if text else ''}"
