"""Loads a transformers model, or one from Python code, with batches of inputs for it."""

import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from inspect import signature
from pathlib import Path
from traceback import extract_tb
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normlab.any_model.batches.example import first_line
from normlab.any_model.batches.from_batch import KEPT
from normlab.data.text_files import decoded
from normlab.errors import UserError

TEXT = (
    "The old lighthouse keeper counted the ships that passed before the storm, and wrote each name "
    "into a book that nobody had asked him to keep.",
    "Why does the same sentence get another result in a larger batch?",
    "In 1969, some 600 million people watched two of three astronauts walk on the moon.",
    "It rained.",
)
ROWS, TOKENS = 8, 128
_FILES = ["*.json", "*.safetensors", "*.model", "*.txt"]
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.*", "*.model")


class Loaded(NamedTuple):
    """A model, batches of inputs for it, and a note about the inputs."""

    model: nn.Module
    batches: Any
    note: str = ""


def load_hf(place: str, text: Path | None = None, *, trust: bool = False) -> Loaded:
    """Load a transformers model from a folder or a huggingface.co id, with inputs for it.

    Weights are read from safetensors only, and code that comes with the model is run only with
    `trust`. A text model gets the first 64 lines of the file `text`, or built-in sentences; without
    a tokenizer, and for images and sound, the inputs are random.

    Raises UserError with a one-sentence message if the model or its inputs cannot be loaded.
    """
    lines = read_lines(text) if text else TEXT
    model, tokenizer, _, note = load_model(place, trust=trust)
    wants = model.main_input_name
    if text and tokenizer is None:
        why = "has no tokenizer" if wants == "input_ids" else f"expects {wants}"
        raise UserError(f"{place} {why}, so --text cannot be used")
    if tokenizer is None:
        note = (" (there is no tokenizer)" if wants == "input_ids" else "") + note
        return Loaded(model, [_random_inputs(model, wants)], f"inputs: random {wants}{note}")
    used = lines[: ROWS * KEPT]
    batches = [accepted(model, encoded) for encoded in tokenized(tokenizer, used)]
    source = f"{len(lines)} built-in sentences"
    if text:
        part = f"the first {len(used)} of " * (len(used) < len(lines))
        source = f"{text}, {part}{len(lines):,} lines"
    return Loaded(model, batches, f"inputs: {source}{note}")


def read_lines(text: Path) -> list[str]:
    """Return the lines of a file that are not blank; UserError if there is no such file."""
    if not text.is_file():
        raise UserError(f"--text {text}: no such file")
    with text.open("rb") as opened:
        return [line for line in decoded(opened, origin=str(text)) if line.strip()]


def load_model(place: str, *, trust: bool) -> tuple[Any, Any, Path, str]:
    """Load a transformers model; return the model, its tokenizer, its folder, and a note.

    The tokenizer gets a pad token. It is None if the folder has none or the model takes no text.
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
        model, loading_info = kind.from_pretrained(folder, **options)
    except Exception as error:  # transformers raises exceptions of any class
        reason = first_line(error)
        if "trust_remote_code" in str(error):
            reason = "it needs the Python code in its folder; --trust-remote-code runs that code"
        raise UserError(f"{place} cannot be loaded: {reason}") from error
    missing = ", ".join(sorted(loading_info["missing_keys"])[:3])
    note = f"; not in the checkpoint, so randomly initialized: {missing}" if missing else ""
    files = (path for name in _TOKENIZER for path in folder.glob(name))
    if model.main_input_name != "input_ids" or not any(files):
        return model, None, folder, note
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
    except Exception as error:  # such as a tokenizer that needs another package
        raise UserError(
            f"the tokenizer of {place} cannot be loaded; are all of its files there? "
            f"({first_line(error).strip(' :')})"
        ) from error
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token or tokenizer.unk_token
    return model, tokenizer, folder, note


def tokenized(tokenizer: Any, lines: Sequence[str]) -> Iterator[Any]:
    """Yield padded batches of `ROWS` tokenized lines, with at most `TOKENS` tokens per line."""
    length = min(TOKENS, tokenizer.model_max_length)
    options = {"padding": True, "truncation": True, "max_length": length, "return_tensors": "pt"}
    for n in range(0, len(lines), ROWS):
        yield tokenizer([*lines[n : n + ROWS]], return_special_tokens_mask=True, **options)


def _random_inputs(model: Any, wants: str) -> dict[str, Tensor]:
    """Return four rows of random inputs, text and audio padded; UserError for other inputs."""
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
            f"{type(model).__name__} expects {wants}: pass its inputs with --module and --inputs"
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
    """Return the inputs that the model takes; a decoder gets the encoder's or arbitrary ids."""
    names = signature(model.forward).parameters
    values = dict(batch)
    if "decoder_input_ids" in names and getattr(model.config, "is_encoder_decoder", False):
        values["decoder_input_ids"] = values.get("input_ids", torch.arange(3, 11).repeat(4, 1))
    return {name: value for name, value in values.items() if name in names}


def _folder(place: str, *, trust: bool) -> Path:
    """Return a model's folder, downloaded if `place` is an id; UserError if it has no weights."""
    folder = Path(place)
    if not folder.is_dir():
        if folder.exists() or place.count("/") > 1 or place.startswith((".", "/", "~")):
            raise UserError(f"{place} is not a folder: use one that save_pretrained wrote")
        from huggingface_hub import snapshot_download

        try:
            files = [*_FILES, "*.py"] if trust else _FILES
            folder = Path(snapshot_download(place, allow_patterns=files))
        except Exception as error:
            raise UserError(
                f"{place} is not a folder and cannot be downloaded from huggingface.co "
                f"({first_line(error)}): use a model's folder"
            ) from error
    if not (folder / "config.json").is_file():
        raise UserError(f"{place} has no config.json: use a folder that save_pretrained wrote")
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"{place} has no *.safetensors, and normlab loads no pickled weights (they can run "
            "code): convert them with from_pretrained and save_pretrained"
        )
    return folder


def load_names(model: str, inputs: str) -> Loaded:
    """Import a model and its batches, each by `package.module:name`; functions are called."""
    module = _imported(model)
    if not isinstance(module, nn.Module):
        raise UserError(f"--module {model} is a {type(module).__name__}, not an nn.Module")
    return Loaded(module, _imported(inputs))


def load_place(place: str) -> tuple[nn.Module, Any, dict[str, Any]]:
    """Return the model, batches and `inspect` arguments that a MODEL of the pytest plugin means.

    Raises UserError with a one-sentence message if they cannot be loaded or created.
    """
    kind, _, name = place.partition(":")
    if kind == "hf":
        model, batches, _ = load_hf(name)
        return model, batches, {}
    if kind == "hf-tiny":
        from normlab.any_model.loading.tiny import tiny_model

        model, batch = tiny_model(name)
        return model, [batch], {}
    if kind == "timm":
        try:
            from timm import create_model  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise UserError("timm:NAME needs timm: pip install timm") from None
        try:
            model = create_model(name, pretrained=False)
        except RuntimeError as error:  # an unknown name
            raise UserError(f"{place}: {first_line(error)}") from error
        size = getattr(model, "default_cfg", {}).get("input_size", (3, 224, 224))
        images = torch.randn(3, *size, generator=torch.Generator().manual_seed(0))
        return model.eval(), [images], {}
    made_here: Any = _imported(place)
    if not (isinstance(made_here, tuple) and len(made_here) in (2, 3)):
        raise UserError(f"{place}: return a model and its batches, as a tuple")
    options = made_here[2] if len(made_here) == 3 else {}
    return made_here[0], made_here[1], options


def _imported(place: str) -> Any:
    name, _, attribute = place.partition(":")
    if not (name and attribute):
        raise UserError(f"{place}: expected package.module:name")
    sys.path.insert(0, "")
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        raise UserError(f"{place}: no module named {error.name}") from error
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
    except Exception as error:  # the user's code may raise anything
        last = extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        raise UserError(
            f"{place} raised {type(error).__name__} in {where}: {first_line(error)}"
        ) from error
