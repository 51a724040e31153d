"""`normlab inspect --hf` and `--module` load a model with its inputs, or say why they cannot."""

import json
import sys
from pathlib import Path
from types import ModuleType

import huggingface_hub
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    ByT5Tokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    ResNetConfig,
    ResNetModel,
    T5Config,
    T5ForConditionalGeneration,
    Wav2Vec2Config,
    Wav2Vec2Model,
)

import normlab
from normlab.any_model.loading.load import BUILT_IN_SENTENCES, load_by_prefix, load_transformers
from normlab.cli import main
from tests.any_model.toys import FAULTY

SIZES = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SIZES = {**SIZES, "hidden_size": 8}
CONVOLUTIONS = {"conv_dim": [8], "conv_kernel": [10], "conv_stride": [5]}
MODELS = {
    "bert": (BertModel, BertConfig(vocab_size=40, **SIZES)),
    "gpt2": (
        GPT2LMHeadModel,
        GPT2Config(
            vocab_size=40, n_layer=1, n_head=2, n_embd=8, bos_token_id=None, eos_token_id=None
        ),
    ),
    "resnet": (
        ResNetModel,
        ResNetConfig(embedding_size=4, hidden_sizes=[4], depths=[1], layer_type="basic"),
    ),
    "t5": (
        T5ForConditionalGeneration,
        T5Config(vocab_size=40, d_model=8, d_ff=16, num_layers=1, num_heads=2, d_kv=4),
    ),
    "wav2vec2": (
        Wav2Vec2Model,
        Wav2Vec2Config(
            **SIZES, **CONVOLUTIONS, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2
        ),
    ),
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def saved(name):
    kind, config = MODELS[name]
    torch.manual_seed(0)
    kind(config).save_pretrained(name)
    return name


def with_tokenizer(name):
    words = {"<pad>": 0, "<unk>": 1, "a": 2, "b": 3, "c": 4, "d": 5}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")
    fast.save_pretrained(name)
    return name


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("bert", {"input_ids": (4, 24), "attention_mask": (4, 24)}),
        ("gpt2", {"input_ids": (4, 24), "attention_mask": (4, 24)}),
        ("resnet", {"pixel_values": (4, 3, 224, 224)}),
        ("t5", dict.fromkeys(("input_ids", "attention_mask", "decoder_input_ids"), (4, 24))),
        ("wav2vec2", {"input_values": (4, 16_000), "attention_mask": (4, 16_000)}),
    ],
)
def test_a_model_without_a_tokenizer_gets_random_inputs(name, shapes):
    model, (batch,), note = load_transformers(saved(name))
    assert type(model) is MODELS[name][0] and not model.training
    assert {key: tuple(value.shape) for key, value in batch.items()} == shapes
    assert note.startswith(f"inputs: random {next(iter(shapes))}")
    assert ("no tokenizer" in note) == ("input_ids" in shapes)


def test_each_line_of_a_text_becomes_one_row():
    place = with_tokenizer(saved("bert"))
    with open("lines.txt", "w") as file:
        file.write("a b c\n\n" + "d a\n" * 8)
    _, (first, second), note = load_transformers(place, Path("lines.txt"))
    assert first["input_ids"][:2].tolist() == [
        [2, 3, 4],
        [5, 2, 1],
    ]  # padding: <unk>
    assert first["attention_mask"].sum(1).tolist() == [3, *[2] * 7]
    assert len(first["input_ids"]) == 8 and len(second["input_ids"]) == 1
    assert note == "inputs: lines.txt, 9 lines"
    _, (batch,), note = load_transformers(place)
    assert (
        len(batch["input_ids"]) == len(BUILT_IN_SENTENCES)
        and note == "inputs: 4 built-in sentences"
    )


def test_randomly_initialized_weights_are_listed_in_the_note():
    place = saved("bert")
    text = Path(f"{place}/config.json").read_text().replace("BertModel", "BertForMaskedLM")
    Path(f"{place}/config.json").write_text(text)
    note = load_transformers(place).note
    assert "; not in the checkpoint, so randomly initialized: cls.predictions" in note


def test_without_transformers_the_error_says_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["inspect", "--hf", "bert"]) == 1
    assert capsys.readouterr().err.endswith("-c constraints.txt transformers\n")


def test_unavailable_models_and_missing_files_give_a_one_line_error(monkeypatch, capsys):
    def refuse(*_, **options):
        assert not any("bin" in pattern or "py" in pattern for pattern in options["allow_patterns"])
        raise OSError("no network\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    place = saved("bert")
    Path("empty").mkdir()
    Path("pickled").mkdir()
    Path("pickled/config.json").write_text("{}")
    Path("pickled/pytorch_model.bin").write_text("")
    Path("lines.txt").write_text("a\n")
    for arguments, said in [
        (["google/bert"], "google/bert is not a folder and cannot be downloaded"),
        (["./no"], "./no is not a folder; use one that save_pretrained wrote"),
        (["empty"], "empty has no config.json"),
        (["pickled"], "pickled has no *.safetensors, and normlab loads no pickled weights"),
        ([place, "--text", "no.txt"], "--text no.txt: the file does not exist"),
        ([place, "--text", "lines.txt"], "bert has no tokenizer, so --text cannot be used"),
        ([saved("resnet"), "--text", "lines.txt"], "resnet expects pixel_values, so --text"),
    ]:
        assert main(["inspect", "--hf", *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


def test_a_config_that_does_not_fit_the_weights_is_refused(tmp_path, capsys):
    GPT2LMHeadModel(GPT2Config(vocab_size=9, n_layer=1, n_head=2, n_embd=8)).save_pretrained("gpt2")
    config = json.loads(Path("gpt2/config.json").read_text())
    Path("gpt2/config.json").write_text(json.dumps({**config, "n_embd": 16}))
    assert main(["inspect", "--hf", "gpt2"]) == 1
    said = (
        "does not fit the weights: transformer.h.0.attn.c_attn.bias is [24] in the file, but [48]"
    )
    assert said in capsys.readouterr().err


def test_python_code_in_a_model_folder_is_not_run():
    place = saved("bert")
    config = json.loads(Path(f"{place}/config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.Model"}}
    Path(f"{place}/config.json").write_text(json.dumps(config))
    Path(f"{place}/own.py").write_text("open('run', 'w')")
    with pytest.raises(ValueError, match="bert cannot be loaded: it needs the Python code in its"):
        load_transformers(place)
    assert not Path("run").exists()


CODE = """
import torch
from torch import nn

class Mean(nn.Module):
    def __init__(self, masked):
        super().__init__()
        self.masked = masked
        self.embedding = nn.Embedding(9, 4)

    def forward(self, input_ids, attention_mask):
        x, mask = self.embedding(input_ids), attention_mask[..., None]
        return (x * mask).sum(1) / mask.sum(1) if self.masked else x.mean(1)

def sound(): return Mean(True)
def leaking(): return Mean(False)
number = 3

def batches():
    ids = torch.arange(1, 9)[None].repeat(4, 1)
    return [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]
"""


def test_the_exit_status_is_1_if_a_finding_is_broken(capsys):
    Path("own_models.py").write_text(CODE)
    inputs = ["--inputs", "own_models:batches"]
    assert main(["inspect", "--module", "own_models:sound", *inputs]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("fine") and " padding: " in line for line in lines)
    assert (
        main(["inspect", "--module", "own_models:leaking", *inputs, "--json", "--html", "p.html"])
        == 1
    )
    assert "padding" in Path("p.html").read_text()
    found = json.loads(capsys.readouterr().out)["findings"]
    assert ("padding", "broken") in [(each["name"], each["verdict"]) for each in found]


def test_modules_that_do_not_exist_or_cannot_be_imported_are_refused(capsys):
    Path("own_names.py").write_text(CODE)
    Path("own_broken.py").write_text("import torch\n1 / 0\n")
    Path("own_syntax.py").write_text("\ndef x(: pass\n")
    for module, inputs, said in [
        ("own_names", "own_names:batches", "own_names must have the form package.module:name"),
        ("own_no:make", "own_names:batches", "own_no:make: the module own_no does not exist"),
        ("own_names:soun", "own_names:batches", "own_names has no soun; did you mean sound?"),
        ("..own:make", "own_names:batches", "..own:make must have the form package.module:name"),
        ("own_broken:x", "own_names:batches", "raised ZeroDivisionError in own_broken.py:2: "),
        ("own_syntax:x", "own_names:batches", "raised SyntaxError in own_syntax.py:2: "),
        ("own_names:number", "own_names:batches", "own_names:number is a int, not an nn.Module"),
    ]:
        assert main(["inspect", "--module", module, "--inputs", inputs]) == 1
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hf", "x", "norm=bn"], "cannot be combined with RUN, key=value, --where, "),
        (["--hf", "x", "--html", "no/p.html"], "--html no/p.html: the folder does not exist"),
        (["--hf", "x", "--html", "."], "--html . is a folder; name a file"),
        (["--text", "x"], "pass --hf MODEL, or --module MODULE:NAME with --inputs"),
        (["--hf", "x", "--inputs", "a:b"], "pass --hf MODEL, or --module"),
        (
            ["--module", "a:b", "--inputs", "a:c", "--text", "x"],
            "--text and --trust-remote-code need",
        ),
        (["--module", "a:b"], "pass --hf MODEL, or --module MODULE:NAME with --inputs"),
        (["--module", "a:b", "--inputs", "a:c", "--hf", "x"], "pass --hf MODEL, or --module"),
        (["--hf", "x", "--rows", "0"], "--rows needs --module"),
        (["norm=bn", "--mask", "real"], "cannot be combined with RUN"),
        (
            ["--module", "a:b", "--inputs", "a:c", "--mask", "m=ones"],
            "m=ones: expected NAME, KIND or",
        ),
        (["--module", "a:b", "--inputs", "a:c", "--positions", "last"], "invalid int value"),
        (
            ["--module", "a:b", "--inputs", "a:c", "--rows", "1", "--positions", "1"],
            "--rows and --positions are both 1",
        ),
    ],
)
def test_incompatible_arguments_are_refused(arguments, said, capsys):
    with pytest.raises(SystemExit):
        main(["inspect", *arguments])
    assert said in capsys.readouterr().err


AXES = """
import torch
from torch import nn

class Centered(nn.Module):
    def __init__(self, axis):
        super().__init__()
        self.axis = axis
    def forward(self, x, keep=None):
        if keep is None:
            return x - x.mean(self.axis, keepdim=True)
        return x - (x * keep[..., None]).sum(1, keepdim=True) / keep.sum(1)[:, None, None]

def first(): return Centered(0)
def last(): return Centered(2)
def numbers(): return [torch.randn(7, 4, 5)]
def kept():
    keep = (torch.arange(7) < torch.tensor([[7], [5], [4]])).float()
    return [{"x": torch.randn(3, 7, 5) * keep[..., None], "keep": keep}]
"""


@pytest.mark.parametrize(
    ("model", "inputs", "option", "before", "after"),
    [
        ("first", "numbers", "--rows=1", "broken", "fine"),
        ("last", "numbers", "--positions=2", "of up to 4 positions", "of up to 5 positions"),
        ("first", "kept", "--mask=keep=real", "no input marks padding", "fine            padding"),
    ],
)
def test_rows_positions_and_mask_can_be_set_by_options(
    model, inputs, option, before, after, capsys
):
    torch.manual_seed(0)
    Path("own_axes.py").write_text(AXES)
    only = "batch_mates" if model == "first" and option[2] == "r" else "padding"
    words = ["inspect", "--module", f"own_axes:{model}", "--inputs", f"own_axes:{inputs}"]
    for options, expected in (([], before), ([option], after)):
        main([*words, *options, "--only", only])
        assert expected in capsys.readouterr().out.replace("\n", " ")


def test_a_tokenizer_without_a_vocabulary_file_is_loaded():
    torch.manual_seed(0)
    T5ForConditionalGeneration(
        T5Config(vocab_size=384, d_model=8, d_ff=16, num_layers=1, num_heads=2, d_kv=4)
    ).save_pretrained("byt5")
    ByT5Tokenizer().save_pretrained("byt5")
    Path("lines.txt").write_text("ab\n")
    (batch,) = load_transformers("byt5", Path("lines.txt")).batches
    assert batch["input_ids"].tolist() == [[100, 101, 1]]


@FAULTY
def test_timm_models_get_images_of_their_input_size(faulty, monkeypatch):
    def create_model(name, pretrained):
        assert not pretrained
        if name != "small":
            raise RuntimeError(f"Unknown model ({name})")
        norm = nn.BatchNorm2d(3, track_running_stats=not faulty)
        norm.default_cfg = {"input_size": (3, 8, 6)}
        return norm.train()

    fake = ModuleType("timm")
    fake.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", fake)
    model, batches, options = load_by_prefix("timm:small")
    assert batches[0].shape[1:] == (3, 8, 6) and not model.training
    found = normlab.inspect(model, batches, checks="batch_mates", **options).findings["batch_mates"]
    assert found.verdict == ("broken" if faulty else "fine")
    with pytest.raises(ValueError, match="timm:no: Unknown model"):
        load_by_prefix("timm:no")


@FAULTY
def test_the_plugin_loads_a_transformers_model_from_a_folder(faulty, tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    convolutions = {"conv_dim": [8], "conv_kernel": [10], "conv_stride": [80]}
    positions = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    norm = {"feat_extract_norm": "group" if faulty else "layer", "intermediate_size": 16}
    config = transformers.Wav2Vec2Config(**sizes, **convolutions, **positions, **norm)
    transformers.Wav2Vec2Model(config).save_pretrained(tmp_path)
    model, batches, options = load_by_prefix(f"hf:{tmp_path}")
    found = normlab.inspect(model, batches, checks="padding", **options).findings["padding"]
    assert (found.verdict == "broken") == faulty, found
