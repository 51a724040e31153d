"""Which models of transformers move when a batch is padded: `python scripts/survey.py [NAMES]`.

Builds the base model of every type in transformers that takes a mask over tokens or frames, from a
small config with random weights, gives it four rows of unequal length with the mask, and asks
`normlab.inspect`. Writes results/survey/table.md and results/survey/findings.json; the rows of
classes that were not named are kept. A class is left out, with the reason, if no small config
builds within 10 seconds, no input fits, or its questions take longer than two minutes.
"""

import inspect
import json
import multiprocessing
import os
import re
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

import normlab
from normlab.any_model.finding import questions
from normlab.errors import UserError
from normlab.records.files import atomic_write

FOLDER = Path(
    os.environ.get("SURVEY") or Path(__file__).resolve().parents[1] / "results" / "survey"
)
BUILD_SECONDS, SECONDS, PARAMETERS, BYTES = 10, 120, 60_000_000, 6 * 2**30
VOCABULARY, LENGTHS = 200, (32, 24, 16, 8)
MASKS = ("attention_mask", "padding_mask", "input_features_mask", "feature_attention_mask")
AUDIO = ("input_values", "input_features")
SPEECH_HEADS = ("SeamlessM4TForSpeechToText", "SeamlessM4Tv2ForSpeechToText")

# Numbers of a config by their names, first match first: the small value, or None to keep it.
SIZES: tuple[tuple[str, int | None], ...] = (
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


def small_value(name: str, value: Any, how: str) -> Any:
    """Return the small value of a config's entry; `how` says what shrinks (see `BUILDS`)."""
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
    small = next((size for name_, size in SIZES if re.fullmatch(name_, name)), None)
    if small is None or value <= small:
        return value
    if how in ("eighth", "depth") and (small in WIDTHS or "head" in name):
        narrow = how == "eighth" and small in WIDTHS and value % 8 == 0
        return value // 8 if narrow else value
    return value if how == "heads" and small == 8 else small


def small_settings(config: Any, how: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the settings of a config class, with those of the configs inside, made small."""
    values = {f.name: f.default for f in fields(config) if f.default is not MISSING}
    for field in fields(config):
        if field.default_factory is not MISSING:
            values[field.name] = field.default_factory()
    settings = {}
    for name, value in (values | dict(given or {})).items():
        small = small_value(name, value, how)
        if small != value or name in (given or {}):
            settings[name] = small
    for name, spec in config.sub_configs_defaults.items():
        inner = spec.config_class
        if not hasattr(inner, "sub_configs_defaults"):  # AutoConfig
            inner = CONFIG_MAPPING[spec.model_type]
        settings[name] = small_settings(inner, how, spec.init_kwargs)
        if inner.model_type:
            settings[name].setdefault("model_type", inner.model_type)
    return settings


BUILDS = ("all", "heads", "eighth", "depth")
"""All sizes small; two heads of the default width; widths an eighth and heads as they are; depth
and vocabulary alone.
"""
WIDE_HEAD = 128
TWO_HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": 2 * WIDE_HEAD}


def build(name: str) -> Iterator[nn.Module]:
    """Yield the class's model by each way in which its config can be made small."""
    cls = getattr(transformers, name)
    reasons = []
    for how in BUILDS:
        try:
            config = cls.config_class(**small_settings(cls.config_class, how))
            with torch.device("meta"):
                size = sum(p.numel() for p in cls(config).parameters())
            if size > PARAMETERS:
                raise ValueError(f"{size / 1e6:.0f} M parameters")
            torch.manual_seed(0)
            yield cls(config).float().eval()
        except Exception as error:
            reasons.append(f"{how}: {one_line(error)}")
    raise ValueError("; ".join(reasons) or "no input fits")


def one_line(error: BaseException) -> str:
    """Return an exception's type and the first line of its message."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:120] if text else ''}"


def mask_of(lengths: tuple[int, ...]) -> Tensor:
    """Return a mask [row, position], 1 where a token is real."""
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


def inputs(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Yield inputs that may fit a model, with the mask that its `forward` names."""
    names = list(inspect.signature(model.forward).parameters)
    generator = torch.Generator().manual_seed(1)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    def tokens() -> Tensor:
        ids = torch.randint(10, VOCABULARY - 20, (len(LENGTHS), max(LENGTHS)), generator=generator)
        return ids * mask_of(LENGTHS)

    mask = next(m for m in MASKS if m in names)
    later: dict[str, Tensor] = {}
    if "decoder_input_ids" in names:
        later["decoder_input_ids"] = tokens()[:, :7].clamp(min=10)
    audio = next((key for key in AUDIO if key in names), None)
    for scale in (1, 4, 16, 640, 1024 / 32):  # frames, samples of raw audio, a fixed length
        if audio is None:
            break
        lengths = tuple(int(scale * n + 0.5) for n in LENGTHS)
        own = mask_of(lengths)
        if scale == 640:
            batch = {audio: noise(*own.shape) * own, mask: own}
            yield batch | later
            yield batch | {audio: batch[audio][:, None]}
            continue
        for width in widths(model):
            batch = {audio: noise(*own.shape, width) * own[:, :, None], mask: own}
            for each in (batch, batch | {audio: batch[audio].mT.contiguous()}):
                yield each | later
    if "input_ids" in names:
        text = {"input_ids": tokens(), mask: mask_of(LENGTHS)} | later
        yield text
        if "pixel_values" in names:
            vision = getattr(model.config, "vision_config", model.config)
            size = getattr(vision, "image_size", 224)
            yield text | {"pixel_values": noise(len(LENGTHS), 3, size, size)}


def widths(model: nn.Module) -> list[int]:
    """Return how many features a frame may have, the likeliest first."""
    names = ("num_mel_bins", "feature_size", "input_dim", "input_size", "input_feat_per_channel")
    bins = [getattr(model.config, name, None) for name in (*names, "feature_projection_input_dim")]
    return list(dict.fromkeys(b for b in (*bins, 80, 128, 160, 64, 320, 560) if type(b) is int))


def fits(model: nn.Module) -> dict[str, Tensor]:
    """Return the first inputs that the model takes."""
    errors = []
    for batch in inputs(model):
        try:
            with torch.no_grad():
                model(**batch)
            return batch
        except Exception as error:
            errors.append(one_line(error))
    raise ValueError(f"no input fits: {errors[0] if errors else 'none is known'}")


def made(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return a class's model and inputs for it; ValueError with the first reason if none fits."""
    reasons = []
    try:
        for model in build(name):
            try:
                return model, fits(model)
            except ValueError as error:
                reasons.append(str(error))
    except ValueError as error:
        reasons.append(str(error))
    raise ValueError(reasons[0])


def classes() -> list[str]:
    """Return the base models that take a mask over tokens or frames, those of audio first."""
    found = {}
    for named in (*MODEL_MAPPING_NAMES.values(), SPEECH_HEADS):
        for name in [named] if isinstance(named, str) else named:
            try:
                cls = getattr(transformers, name)
                names = inspect.signature(cls.forward).parameters
            except (AttributeError, ImportError):
                continue
            takes = {"input_ids", *AUDIO} & set(names)
            if takes and set(MASKS) & set(names) and cls.main_input_name != "pixel_values":
                found[name] = not takes & set(AUDIO)
    return sorted(found, key=lambda name: (found[name], name))


def ask(name: str) -> dict[str, Any]:
    """Return the row of a class: what its model was given, and what was found."""
    signal.setitimer(signal.ITIMER_PROF, BUILD_SECONDS)
    model, batch = made(name)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    started = time.perf_counter()
    mask = next(key for key in batch if key in MASKS)
    length = batch[mask].shape[1]
    report = normlab.inspect(model, [batch], mask=mask, tokens=length, checks=[*TITLES])
    seconds = time.perf_counter() - started
    return {
        "inputs": {key: list(x.shape) for key, x in batch.items()},
        "seconds": round(seconds, 1),
        "findings": {each.name: entry(each) for each in report.by_harm() if each.name in TITLES},
    }


def entry(found: Any) -> dict[str, Any]:
    """Return a finding's verdict, and more if it is not fine."""
    if found.verdict == "fine":
        return {"verdict": "fine"}
    value = None if found.value is None else float(f"{found.value:.3g}")
    if found.why_not:
        return {"verdict": found.verdict, "sentence": found.why_not}
    more = {"value": value, "module": found.module, "sentence": str(found)}
    return {"verdict": found.verdict} | {k: v for k, v in more.items() if v is not None}


def _late(*_: Any) -> None:
    raise TimeoutError("took too long")


def work(name: str, to: Connection) -> None:
    """Send a class's row, or why there is none, from a process of its own."""
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    signal.signal(signal.SIGPROF, _late)
    warnings.simplefilter("ignore")
    try:
        to.send(ask(name))
    except BaseException as error:
        plain = type(error) in (ValueError, UserError)
        to.send({"left_out": str(error) if plain else one_line(error)})


def said(row: Mapping[str, Any]) -> str:
    """Return a class's row in one line."""
    if "left_out" in row:
        return f"left out: {row['left_out']}"
    found = row["findings"].items()
    return "; ".join(f"{k}: {f['verdict']} {f.get('value', '')}" for k, f in found)


HEAD = """# Where padding changes the output of transformers {transformers} models

{asked} base models of transformers {transformers} that take a mask over tokens or frames, each from
a small config with **random weights**, with four rows of unequal length **and their mask**. Made by
`python scripts/survey.py` with `normlab.inspect` ([how to read it](../../docs/howto/any_model.md)).
A class with a head, such as BertForMaskedLM, contains its base model and is not listed. Random
weights show where an output can change, not by how much it changes in a trained model. Some
classes accept a mask but ignore it by design (Whisper). Both `look` and `broken` are listed.
`findings.json` has the reason for each of the {left_out} classes that were left out.
"""


TITLES = {
    "padding": "In evaluation, padding moves the output at real tokens",
    "batch_mates": "In evaluation, other rows move the output",
    "modes": "In training, padding enters the statistics of a norm",
}


def words(found: Mapping[str, Any]) -> str:
    """Return the module and what it is, as a finding's sentence has it."""
    module, sentence = found.get("module", ""), found["sentence"]
    if not module:
        return "the model's own forward" if "the model itself" in sentence else "no single module"
    said = sentence.partition(f"{module}: ")[2].partition(". One row")[0].partition("; training")[0]
    return f"`{module}`: {said}"


def counts(rows: Mapping[str, Any]) -> dict[str, int]:
    """Return how many classes were asked, left out, and move, by question."""
    asked = [row["findings"] for row in rows.values() if "findings" in row]
    moved = {
        name: sum(each.get(name, {}).get("verdict") in ("look", "broken") for each in asked)
        for name in TITLES
    }
    return {"asked": len(asked), "left_out": len(rows) - len(asked)} | moved


def one_class_per_line(content: Mapping[str, Any]) -> str:
    """Return the survey as JSON."""
    lines = [f" {json.dumps(k)}: {json.dumps(row)}" for k, row in content["classes"].items()]
    head = json.dumps({**content, "classes": {}}).removesuffix("{}}")
    return head + "{\n" + ",\n".join(lines) + "\n}}\n"


def table(content: Mapping[str, Any]) -> str:
    """Return the survey as a page."""
    rows = {k: row["findings"] for k, row in content["classes"].items() if "findings" in row}
    lines = HEAD.format(**content["counts"], **content).splitlines()
    moved = set()
    for name, title in TITLES.items():
        found = {k: each[name] for k, each in rows.items() if name in each}
        found = {k: f for k, f in found.items() if f["verdict"] in ("look", "broken")}
        moved |= found.keys()
        lines += ["", f"## {title}: {len(found)}", ""]
        lines += ["| class | moved by | module |", "| --- | --- | --- |"] if found else ["None."]
        by_value = sorted(found.items(), key=lambda item: -item[1].get("value", 0))
        for k, f in by_value:
            size = f"{f['value']:.2%}" if "value" in f else ""
            lines.append(f"| {k} | {size} | {words(f)} |")
    quiet = [k for k in rows if k not in moved]
    unclear = [k for k in quiet if rows[k]["padding"]["verdict"] == "does not apply"]
    quiet = [k for k in quiet if k not in unclear]
    lines += ["", f"## No effect found: {len(quiet)}", "", f"{', '.join(quiet)}."]
    if unclear:
        lines += ["", f"## Padding could not be tested: {len(unclear)}", ""]
        lines += [f"{', '.join(unclear)}."]
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> None:
    """Ask about the named classes, or all, and write the results."""
    path = FOLDER / "findings.json"
    rows = json.loads(path.read_text("utf-8"))["classes"] if path.exists() else {}
    questions()  # imports, once for all processes
    process = multiprocessing.get_context("fork")
    for name in names or classes():
        receive, send = process.Pipe(duplex=False)
        worker = process.Process(target=work, args=(name, send))
        worker.start()
        send.close()
        try:
            rows[name] = receive.recv()
        except EOFError:
            rows[name] = {"left_out": "its process ended"}
        worker.join()
        print(name, said(rows[name]), flush=True)
        FOLDER.mkdir(exist_ok=True)
        content = {"transformers": transformers.__version__, "torch": torch.__version__}
        content["counts"] = counts(rows)
        content["classes"] = dict(sorted(rows.items()))
        with atomic_write(path) as file:
            file.write(one_class_per_line(content))
        with atomic_write(FOLDER / "table.md") as file:
            file.write(table(content))


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    main(sys.argv[1:])
