"""Loads a model from transformers or from Python code, with batches of inputs for it."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normlab.any_model.batches.example import error_of_user_code, message_of
from normlab.any_model.batches.from_batch import KEPT
from normlab.data.text_files import decoded
from normlab.errors import UserError

BUILT_IN_SENTENCES = (
    "The old lighthouse keeper counted the ships that passed before the storm, and wrote each name "
    "into a book that nobody had asked him to keep.",
    "Why does the same sentence get another result in a larger batch?",
    "In 1969, some 600 million people watched two of three astronauts walk on the moon.",
    "It rained.",
)
ROWS, TOKENS = 8, 128
_FILES = ["*.json", "*.safetensors", "*.model", "*.txt"]
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.*", "*.model")


class ModelWithInputs(NamedTuple):
    """A model, batches of inputs for it, and a note about where the inputs come from."""

    model: nn.Module
    batches: Any
    note: str = ""


class ModelWithOptions(NamedTuple):
    """A model, batches of inputs for it, and further arguments of `normlab.inspect`."""

    model: nn.Module
    batches: Any
    options: Mapping[str, Any] = {}


class Checkpoint(NamedTuple):
    """A transformers model, its tokenizer, its folder, and a note about missing weights.

    The tokenizer has a pad token. It is None if the folder has no tokenizer, or if the model does
    not take text.
    """

    model: Any
    tokenizer: Any
    folder: Path
    note: str


def load_transformers(
    place: str, text: Path | None = None, *, trust: bool = False
) -> ModelWithInputs:
    """Load a transformers model from a folder or a huggingface.co id, with inputs for it.

    Weights are read only from safetensors, and code that comes with the model is run only with
    `trust`. A text model gets the first 64 lines of the file `text`, or built-in sentences. Without
    a tokenizer, and for images and audio, the inputs are random.

    Raises UserError with a one-sentence message if the model or its inputs cannot be loaded.
    """
    lines = nonblank_lines(text) if text else BUILT_IN_SENTENCES
    model, tokenizer, _, note = load_with_tokenizer(place, trust=trust)
    wants = model.main_input_name
    if text and tokenizer is None:
        why = "has no tokenizer" if wants == "input_ids" else f"expects {wants}"
        raise UserError(f"{place} {why}, so --text cannot be used")
    if tokenizer is None:
        why = " (there is no tokenizer)" if wants == "input_ids" else ""
        batch = _random_inputs(model, wants)
        return ModelWithInputs(model, [batch], f"inputs: random {wants}{why}{note}")
    used = lines[: ROWS * KEPT]
    batches = [accepted(model, encoded) for encoded in tokenized(tokenizer, used)]
    if not text:
        source = f"{len(lines)} built-in sentences"
    elif len(used) < len(lines):
        source = f"{text}, the first {len(used)} of {len(lines):,} lines"
    else:
        source = f"{text}, {len(lines):,} lines"
    return ModelWithInputs(model, batches, f"inputs: {source}{note}")


def nonblank_lines(text: Path) -> list[str]:
    """Return the lines of a file that are not blank. Raise UserError if there is no such file."""
    if not text.is_file():
        raise UserError(f"--text {text}: the file does not exist")
    with text.open("rb") as opened:
        return [line for line in decoded(opened, origin=str(text)) if line.strip()]


def load_with_tokenizer(place: str, *, trust: bool) -> Checkpoint:
    """Load a transformers model and its tokenizer from a folder or a huggingface.co id.

    Raises UserError if one of them cannot be loaded.
    """
    try:
        import transformers
    except ImportError:
        install = "pip install -c constraints.txt transformers"
        raise UserError(f"--hf needs transformers: {install}") from None
    folder = _folder(place, trust=trust)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    options: Any = {"trust_remote_code": trust}
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **options)
        autos = [name for name in getattr(config, "auto_map", ()) if name.startswith("AutoModel")]
        names = [*(config.architectures or ()), *autos, "AutoModel"]
        kinds = (getattr(transformers, name, None) for name in names)
        kind = next(kind for kind in kinds if kind)
        options |= {"use_safetensors": True, "dtype": "auto", "output_loading_info": True}
        options["ignore_mismatched_sizes"] = True  # `_check_sizes` refuses them
        model, loading_info = kind.from_pretrained(folder, **options)
    except Exception as error:  # transformers raises exceptions of any class
        reason = message_of(error)
        if "trust_remote_code" in str(error):
            reason = "it needs the Python code in its folder; --trust-remote-code runs that code"
        raise UserError(f"{place} cannot be loaded: {reason}") from error
    _check_sizes(place, loading_info["mismatched_keys"])
    missing = ", ".join(sorted(loading_info["missing_keys"])[:3])
    note = f"; not in the checkpoint, so randomly initialized: {missing}" if missing else ""
    files = (path for name in _TOKENIZER for path in folder.glob(name))
    if model.main_input_name != "input_ids" or not any(files):
        return Checkpoint(model, None, folder, note)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
    except Exception as error:  # such as a tokenizer that needs another package
        raise UserError(
            f"the tokenizer of {place} cannot be loaded; are all of its files there? "
            f"({message_of(error).strip(' :')})"
        ) from error
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token or tokenizer.unk_token
    return Checkpoint(model, tokenizer, folder, note)


def _check_sizes(place: str, mismatched: Iterable[tuple[str, Any, Any]]) -> None:
    """Raise UserError if there is a weight whose shape in the file and in the model differ."""
    for name, in_file, in_model in sorted(mismatched):
        raise UserError(
            f"{place}: config.json does not fit the weights: {name} is {[*in_file]} in the file, "
            f"but {[*in_model]} in the model; use the config.json that was saved with it"
        )


def tokenized(tokenizer: Any, lines: Sequence[str]) -> Iterator[Any]:
    """Yield padded batches of `ROWS` tokenized lines, with at most `TOKENS` tokens per line."""
    length = min(TOKENS, tokenizer.model_max_length)
    options = {"padding": True, "truncation": True, "max_length": length, "return_tensors": "pt"}
    for n in range(0, len(lines), ROWS):
        yield tokenizer([*lines[n : n + ROWS]], return_special_tokens_mask=True, **options)


def _random_inputs(model: Any, wants: str) -> dict[str, Tensor]:
    """Return four rows of random inputs. Text and audio have different lengths, and are padded.

    Raises UserError if the model expects a different kind of input.
    """
    config, generator = model.config, torch.Generator().manual_seed(0)
    names = ("num_mel_bins", "max_length", "max_source_positions", "image_size", "num_channels")
    bins, length, frames, size, channels = (getattr(config, name, None) for name in names)
    dims = ("feature_projection_input_dim", "input_feat_per_channel", "num_mel_bins")
    width = next((getattr(config, name) for name in dims if hasattr(config, name)), 80)
    shapes = {
        "input_ids": (24,),
        "pixel_values": (channels or 3, *(size if isinstance(size, list) else [size or 224] * 2)),
        "input_values": (length, bins) if bins else (16_000,),  # spectrograms, else one second
        "input_features": (bins, 2 * frames) if bins and frames else (200, width),
    }
    if wants not in shapes:
        raise UserError(
            f"{type(model).__name__} expects {wants}; pass its inputs with --module and --inputs"
        )
    batch = {wants: torch.randn(4, *(shape := shapes[wants]), generator=generator)}
    if wants == "input_ids":
        vocabulary = config.get_text_config().vocab_size
        batch[wants] = torch.randint(3, vocabulary, (4, *shape), generator=generator)
    if wants != "pixel_values" and shape[0] != bins:
        real = torch.tensor([[1.0], [0.8], [0.6], [0.5]]) * shape[0]
        batch["attention_mask"] = (torch.arange(shape[0]) < real).long()
    return accepted(model, batch)


def accepted(model: Any, batch: Any) -> dict[str, Tensor]:
    """Return those inputs of a batch that the model takes.

    The decoder of an encoder-decoder gets the encoder's ids, or arbitrary ids if there are none.
    """
    names = signature(model.forward).parameters
    values = dict(batch)
    if "decoder_input_ids" in names and getattr(model.config, "is_encoder_decoder", False):
        values["decoder_input_ids"] = values.get("input_ids", torch.arange(3, 11).repeat(4, 1))
    return {name: value for name, value in values.items() if name in names}


def _folder(place: str, *, trust: bool) -> Path:
    """Return a model's folder. If `place` is an id, download it.

    Raises UserError if the folder has no weights.
    """
    folder = Path(place)
    if not folder.is_dir():
        if folder.exists() or place.count("/") > 1 or place.startswith((".", "/", "~")):
            raise UserError(f"{place} is not a folder; use one that save_pretrained wrote")
        from huggingface_hub import snapshot_download

        try:
            files = [*_FILES, "*.py"] if trust else _FILES
            folder = Path(snapshot_download(place, allow_patterns=files))
        except Exception as error:
            raise UserError(
                f"{place} is not a folder and cannot be downloaded from huggingface.co "
                f"({message_of(error)}); use a model's folder"
            ) from error
    if not (folder / "config.json").is_file():
        raise UserError(f"{place} has no config.json; use a folder that save_pretrained wrote")
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"{place} has no *.safetensors, and normlab loads no pickled weights (they can run "
            "code); convert them with from_pretrained and save_pretrained"
        )
    return folder


def import_model(model: str, inputs: str) -> ModelWithInputs:
    """Import a model and its batches, each from `package.module:name`. A function is called.

    Raises UserError if one of them cannot be imported, or if the model is not an `nn.Module`.
    """
    module = _imported(model)
    if not isinstance(module, nn.Module):
        raise UserError(f"--module {model} is a {type(module).__name__}, not an nn.Module")
    return ModelWithInputs(module, _imported(inputs))


def load_by_prefix(place: str) -> ModelWithOptions:
    """Load the pytest plugin's MODEL; its prefix, such as `hf:`, says where it comes from.

    Raises UserError with a one-sentence message if the model cannot be loaded or created.
    """
    kind, _, name = place.partition(":")
    if kind == "hf":
        model, batches, _ = load_transformers(name)
        return ModelWithOptions(model, batches)
    if kind == "hf-tiny":
        from normlab.any_model.loading.tiny import tiny_model

        model, batch = tiny_model(name)
        return ModelWithOptions(model, [batch])
    if kind == "timm":
        try:
            from timm import create_model  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise UserError("timm:NAME needs timm: pip install timm") from None
        try:
            model = create_model(name, pretrained=False)
        except RuntimeError as error:  # an unknown name
            raise UserError(f"{place}: {message_of(error)}") from error
        size = getattr(model, "default_cfg", {}).get("input_size", (3, 224, 224))
        images = torch.randn(3, *size, generator=torch.Generator().manual_seed(0))
        return ModelWithOptions(model.eval(), [images])
    returned: Any = _imported(place)
    if not (isinstance(returned, tuple) and len(returned) in (2, 3)):
        raise UserError(f"{place} must return a model and its batches, as a tuple")
    return ModelWithOptions(*returned)


def _imported(place: str) -> Any:
    name, _, attribute = place.partition(":")
    if not (name and attribute) or name.startswith("."):
        raise UserError(f"{place} must have the form package.module:name")
    sys.path.insert(0, "")
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        raise UserError(f"{place}: the module {error.name} does not exist") from error
    except Exception as error:  # the user's code may raise anything
        raise error_of_user_code(f"{place}: importing {name}", error) from error
    finally:
        sys.path.remove("")
    if not hasattr(module, attribute):
        near = get_close_matches(attribute, vars(module), n=1)
        suggestion = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"{place}: {name} has no {attribute}{suggestion}")
    value = getattr(module, attribute)
    if isinstance(value, nn.Module) or not callable(value):
        return value
    try:
        return value()
    except Exception as error:
        raise error_of_user_code(place, error) from error
