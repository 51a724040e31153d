"""Finds the mask among a model's inputs, and infers whether its ones are tokens or padding."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normlab.any_model.batches.example import InputKey, MaskKind
from normlab.errors import UserError

KIND_OF_NAME: Mapping[str, MaskKind] = {
    **dict.fromkeys(("attention_mask", "padding_mask", "input_mask", "mask"), "real"),
    **dict.fromkeys(("input_features_mask", "feature_attention_mask"), "real"),
    **dict.fromkeys(("src_key_padding_mask", "key_padding_mask"), "padding"),
    **dict.fromkeys(("lengths", "length", "input_lengths", "seq_lengths", "lens"), "lengths"),
    **dict.fromkeys(("x_lens", "wav_lens", "wav_len", "relative_lengths"), "lengths"),
}
UNCLEAR_NAMES = ("padding_mask", "mask")
"""Names of masks whose ones mean real tokens in some models and padding in others."""
ADDED_MASKS = ("attention_mask", "src_key_padding_mask")
"""The masks to add to a batch without one. The first of them that the model takes is added."""
OF_MEMORY = {"src_key_padding_mask": "memory_key_padding_mask"}
"""The mask with which a decoder reads an encoder's output, for each mask of the encoder."""
MASK_MEANINGS: tuple[MaskKind, ...] = ("real", "padding", "lengths")


MaskArgument = Tensor | InputKey | Mapping[InputKey, MaskKind | None]
"""The argument `mask` of `normlab.inspect`: a tensor, a meaning, an input's name or position, or
one input's name with its meaning. If it is None, the mask is found by names and values.
"""


class Mask(NamedTuple):
    """The key of the mask among the inputs, and its kind, which is None until it is inferred."""

    key: InputKey
    kind: MaskKind | None


class MaskOption(NamedTuple):
    """A parsed `MaskArgument`: the mask as a tensor or as an input, and the meaning of its ones."""

    tensor: Tensor | None = None
    name: InputKey = None
    meaning: MaskKind | None = None


def mask_option(mask: MaskArgument, names: Collection[str], device: torch.device) -> MaskOption:
    """Parse the argument `mask` of `normlab.inspect`, given the names of the inputs.

    A tensor is moved to the device. Raises UserError for an unknown meaning, or for a dict that
    does not have exactly one entry.
    """
    if isinstance(mask, Tensor):
        return MaskOption(tensor=mask.to(device))
    if isinstance(mask, str) and mask in MASK_MEANINGS and mask not in names:
        return MaskOption(meaning=mask)
    if not isinstance(mask, Mapping):
        return MaskOption(name=mask)
    if len(mask) != 1:
        raise UserError(
            f"mask={dict(mask)} has {len(mask)} entries; pass one input's name with the meaning of "
            'its ones, such as {"keep": "padding"}'
        )
    ((name, meaning),) = mask.items()
    if meaning is not None and meaning not in MASK_MEANINGS:
        raise UserError(f"mask={meaning!r}: choose from {', '.join(MASK_MEANINGS)}")
    return MaskOption(name=name, meaning=meaning)


def find_mask(
    values: dict[InputKey, Any], names: Mapping[InputKey, str], option: MaskOption
) -> Mask | None:
    """Return the mask among the inputs, or None if there is none.

    If the user passed the mask as a tensor, it is added to `values`. Raises UserError if the user
    named an input that does not exist, or if the mask does not have a mask's shape.
    """
    key: InputKey = None
    if option.tensor is not None:
        values[key] = option.tensor
    elif option.name is not None:
        key = _key_of(option.name, names)
    else:
        masks = _by_name(values, names)
        if not masks:
            return None
        key = masks[0]
    name, tensor = names.get(key, "mask"), values[key]
    if not isinstance(tensor, Tensor) or tensor.ndim not in (1, 2):
        shape = [*tensor.shape] if isinstance(tensor, Tensor) else type(tensor).__name__
        raise UserError(f"{name} has shape {shape}, but a mask has shape [rows, positions]")
    if tensor.ndim == 1:
        relative = tensor.is_floating_point() and bool(tensor.numel()) and float(tensor.max()) <= 1
        return Mask(key, "shares" if relative else "lengths")
    return Mask(key, option.meaning or _kind_by_name(name))


def _key_of(name: InputKey, names: Mapping[InputKey, str]) -> InputKey:
    """Return the key of the input with this name or position. Raise UserError if there is none."""
    keys = [key for key, known in names.items() if name in (key, known)]
    if not keys:
        raise UserError(f"mask={name!r} is not an input; choose from {', '.join(names.values())}")
    return keys[0]


def _by_name(values: Mapping[InputKey, Any], names: Mapping[InputKey, str]) -> list[InputKey]:
    """Return the keys of inputs with a known name of a mask, then of those that look like masks."""
    tensors = {key: name for key, name in names.items() if isinstance(values[key], Tensor)}
    known = [key for key, name in tensors.items() if name in KIND_OF_NAME]
    return [*known, *(key for key, name in tensors.items() if _is_mask(name, values[key]))]


def _kind_by_name(name: str) -> MaskKind | None:
    return None if name in UNCLEAR_NAMES else KIND_OF_NAME.get(name)


def _is_mask(name: str, x: Tensor) -> bool:
    """Return whether an input has `mask` in its name, two axes, and only zeros and ones."""
    return "mask" in name and x.ndim == 2 and bool(((x == 0) | (x == 1)).all())


def add_mask(
    values: dict[InputKey, Any], names: dict[InputKey, str], parameters: Sequence[str], real: Tensor
) -> Mask | None:
    """Add a mask that marks all positions as real. Return it, or None if the model takes none.

    If the model also takes a mask for the decoder's view of the same positions, add that one, too.
    """
    passed = {names[key] for key, value in values.items() if value is not None}
    missing = [name for name in ADDED_MASKS if name in parameters and name not in passed]
    if not missing:
        return None
    keys = {name: key for key, name in names.items()}  # a mask may be passed as None
    kind = KIND_OF_NAME[missing[0]]
    for name in (missing[0], OF_MEMORY.get(missing[0], "")):
        if name in parameters and name not in passed:
            key = keys.get(name, name)
            values[key], names[key] = real.clone() if kind == "real" else real == 0, name
    return Mask(keys.get(missing[0], missing[0]), kind)


def checked_kind(
    model: nn.Module, x: Tensor, marks: Tensor, name: str, kind: MaskKind | None
) -> MaskKind:
    """Return the kind of a mask, which is inferred if `kind` is None.

    `x` is the main input, with rows on axis 0. Raises UserError if the mask's values do not fit its
    kind.
    """
    if kind is None:
        kind = kind_of(model, x, marks, name)
    if kind in ("real", "padding"):
        check_mask(marks, name or "mask", kind)
    return kind


def kind_of(model: nn.Module, x: Tensor, marks: Tensor, name: str) -> MaskKind:
    """Return whether the ones of a mask are `real` tokens or `padding`.

    Padding usually has one value, such as 0, and tokens have several. If that is inconclusive, some
    row is assumed to have no padding, as in most batches. If that is inconclusive as well, the
    mask's name and the model's library decide.
    """
    ones = marks != 0
    if x.shape[:2] == marks.shape and bool(ones.any()) and not bool(ones.all()):
        one_value = [bool((part == part.flatten()[0]).all()) for part in (x[~ones], x[ones])]
        if one_value[0] != one_value[1]:
            return "real" if one_value[0] else "padding"
    whole, empty = bool(ones.all(1).any()), bool((~ones).all(1).any())
    if whole != empty:
        return "real" if whole else "padding"
    of_transformers = hasattr(model, "config")
    return "padding" if "padding" in name and not of_transformers else "real"


def check_mask(marks: Tensor, name: str, kind: MaskKind) -> None:
    """Raise UserError if a mask has values other than 0 and 1, or a row without real tokens."""
    others = marks[(marks != 0) & (marks != 1)]
    if len(others) and not (kind == "padding" and bool((others == -torch.inf).all())):
        raise UserError(
            f"{name} has the value {others[0].item():.4g}; use 1 for real tokens and 0 for "
            "padding (a mask that is added to attention scores cannot be used here)"
        )
    empty = ((marks != 0) == (kind == "padding")).all(1).nonzero().flatten().tolist()
    if empty:
        ones, other = "1 for real tokens", "padding"
        if kind == "padding":
            ones, other = "True for padding", "real"
        raise UserError(
            f"{name}: row {empty[0]} is all padding; is the mask inverted? Use {ones}, "
            f'or pass mask="{other}"'
        )


def under_padding(x: Tensor, pads: Tensor, real: Tensor) -> int | float:
    """Return the value of another mask under padding, which is inferred if nothing is padded."""
    if x.shape[:2] == pads.shape and bool(pads.any()):
        return x[pads].flatten()[0].item()
    inside = x[real] if x.shape[:2] == real.shape else x
    one_value = bool((inside == inside.flatten()[0]).all())
    return 1 - int(inside.flatten()[0] != 0) if one_value else 0
