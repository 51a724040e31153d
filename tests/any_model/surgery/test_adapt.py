"""`normlab swap` adapts a language model to new norms, and saves it if its class allows that."""

import re
from itertools import islice
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Model,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
)

import normlab
from normlab.any_model.surgery.adapt import Adaptation, LanguageModel, adapt
from normlab.any_model.surgery.swapped import Swapped
from normlab.cli import main
from normlab.errors import UserError

WORDS = ["<pad>", "<unk>", "<mask>", "<s>", *"abcdefghijkl"]
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
SIZES = {**SIZES, "vocab_size": 16, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
WIDE = {**SIZES, "intermediate_size": 32, "num_key_value_heads": 1, "head_dim": 8}
KINDS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config),
    "base": (GPT2Model, GPT2Config),
    "bare": (GPT2LMHeadModel, GPT2Config),
    "llama": (LlamaForCausalLM, lambda **_: LlamaConfig(**WIDE)),
    "gemma": (Gemma3ForCausalLM, lambda **_: Gemma3TextConfig(**WIDE)),
    "bert": (BertForMaskedLM, lambda **_: BertConfig(**SIZES, intermediate_size=32)),
    "two-way": (BertLMHeadModel, lambda **_: BertConfig(**SIZES, intermediate_size=32)),
    "opt": (OPTForCausalLM, lambda **_: OPTConfig(**SIZES, ffn_dim=32, word_embed_proj_dim=16)),
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(4, 16, (60, 9), generator=generator).sort(1).values.tolist()
    Path("lines.txt").write_text("".join(" ".join(WORDS[i] for i in row) + "\n" for row in rows))


def saved(name):
    """Save a model whose norms have random gains, as after training, and return its folder."""
    kind, config = KINDS[name]
    torch.manual_seed(0)
    model = kind(config(**SIZES))
    for path, weight in model.named_parameters():
        weight.data += 0.2 * torch.randn_like(weight) if re.search("norm|ln_", path.lower()) else 0
    model.save_pretrained(name)
    words = models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>")
    made = Tokenizer(words)
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 3)])
    special = {"pad_token": "<pad>", "mask_token": "<mask>", "bos_token": "<s>"}
    PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(name)
    return name


def losses(text):
    found = re.findall(r"^(original|fitted|adapted in \d+ steps) +([\d.]+)$", text, re.M)
    return {name.split()[0]: float(loss) for name, loss in found}


SWAP = ["swap", "norm=none", "--text", "lines.txt", "--steps", "3"]


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma"])
def test_transformers_loads_a_saved_model_without_norms(name, capsys):
    assert main([*SWAP, "--hf", saved(name), "--out", "new"]) == 0
    out = capsys.readouterr().out
    assert float(out.split()[-1]) < 1e-5 and "saved in new" in out
    model, tokenizer = KINDS[name][0].from_pretrained("new"), AutoTokenizer.from_pretrained("new")
    batch = tokenizer(Path("lines.txt").read_text().splitlines()[-6:], return_tensors="pt")
    loss = model(batch["input_ids"], labels=batch["input_ids"]).loss.item()
    assert losses(out)["adapted"] == pytest.approx(loss, abs=1e-4)
    assert sorted(Path().glob(".*")) == []


def test_a_masked_language_model_predicts_15_percent_of_its_tokens(capsys):
    assert main([*SWAP, "--hf", saved("bert"), "--out", "new"]) == 0
    assert "saved in new" in capsys.readouterr().out
    batches = [*LanguageModel("bert", trust=False).batches(["a b c d e f"] * 400, 1)]
    ids, labels = (torch.cat([batch[key] for batch in batches]) for key in ("input_ids", "labels"))
    chosen = labels != -100
    assert (ids[chosen] == 2).all() and not chosen[:, 0].any() and not (ids[~chosen] == 2).any()
    assert torch.equal(labels[chosen], torch.arange(3, 10).repeat(len(ids), 1)[chosen])
    assert chosen[:, 1:].float().mean().item() == pytest.approx(0.15, abs=0.02)


def swapped(name, norm="none"):
    language = LanguageModel(saved(name), trust=False)
    lines = Path("lines.txt").read_text().splitlines()
    found = normlab.swap(language.model, norm, calibrate=language.batches(lines, 0))
    return language, found.model, language.shuffled(lines, 0)


@pytest.mark.parametrize(("name", "lines"), [("gpt2", [""]), ("bert", ["", ""]), ("gpt2", [])])
def test_lines_without_a_token_to_predict_give_an_error_instead_of_an_endless_loop(name, lines):
    language = LanguageModel(saved(name), trust=False)
    with pytest.raises(UserError, match="the lines to train on have no token to predict"):
        next(language.shuffled(lines, 0))


@pytest.mark.parametrize("everything", [False, True])
def test_either_the_new_norms_or_all_weights_are_trained(everything):
    language, model, batches = swapped("gpt2", "dyt")
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    count = adapt(
        model, language.model, batches, Adaptation(steps=2, lr=1e-3, everything=everything)
    )
    news = [path for path, module in model.named_modules() if isinstance(module, Swapped)]
    for name, weight in model.named_parameters():
        own = name.startswith(tuple(f"{path}." for path in news))
        assert torch.equal(weight, before[name]) != (own or everything), name
    weights = sum(weight.numel() for weight in before.values())
    assert count == (weights if everything else 5 * (2 * 16 + 1))


def test_training_lowers_the_loss():
    language, model, batches = swapped("llama")
    held = [*islice(batches, 4)]
    before = language.loss(model, held)
    adapt(model, language.model, batches, Adaptation(steps=20, lr=1e-2, everything=True))
    assert language.loss(model, held) < 0.9 * before
    with pytest.raises(ValueError, match="no token to predict"):
        language.loss(model, language.batches(["", ""], 0))  # rows with only <s>


def test_the_taper_begins_with_the_old_norms_and_ends_with_the_new_ones():
    language, model, batches = swapped("llama")
    batch = next(batches)
    old, new = (float(each(**batch).loss) for each in (language.model, model))
    assert abs(new - old) > 1e-3
    seen = []
    hook = model.register_forward_hook(lambda *call: seen.append(float(call[2].loss)))
    adapt(model, language.model, iter([batch] * 3), Adaptation(steps=3, lr=1e-12, taper=2))
    hook.remove()
    assert abs(seen[0] - old) < abs(seen[1] - old) and seen[2] == pytest.approx(new, abs=1e-6)
    adapt(model, language.model, iter([batch]), Adaptation(steps=1, lr=1e-12, taper=10**7))
    assert float(model(**batch).loss) == pytest.approx(new, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["norm=batch"], "'batch' cannot replace other norms; choose from ln, rms"),
        (["norm=gn", "gropus=8"], "norm=gn has no setting gropus"),
        (["norm=gn", "groups=3"], "transformer.h.0.ln_1: norm.groups=3 does not divide"),
        (["norm=dyt", "norm=rms"], "norm=dyt and norm=rms are both set"),
        (["norm=dyt", "--lr", "1e30"], "the loss is nan at step"),
        (["norm=none", "--out", "x", "--sites", "*.ln_1"], "h.0.ln_2 must also be swapped"),
        (["norm=none", "--hf", "base"], "base is a GPT2Model, which has no loss on text"),
        (["norm=none", "--hf", "two-way"], "two-way: BertLMHeadModel sees later tokens"),
        (
            ["norm=none", "--hf", "bare"],
            "the tokenizer of bare cannot be loaded; are all of its",
        ),
        (
            ["norm=none", "--hf", "opt", "--out", "x"],
            "of OPTForCausalLM does not read its eps from",
        ),
        (["norm=dyt", "--text", "few"], "--text few has 3 lines, but at least 20 are needed"),
        (["norm=dyt", "--text", "no"], "--text no: the file does not exist"),
    ],
)
def test_impossible_swaps_give_a_one_line_error_and_write_nothing(arguments, said, capsys):
    saved(arguments[2] if "--hf" in arguments else "gpt2")
    capsys.readouterr()  # drop the progress output of save_pretrained
    Path("bare/tokenizer.json").unlink(missing_ok=True)
    Path("few").write_text("a b\n" * 3)
    before = sorted(Path().iterdir())
    assert main(["swap", "--hf", "gpt2", "--text", "lines.txt", "--steps", "9", *arguments]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "pass norm=NAME"),
        (["norm=dyt", "--steps", "0"], "--steps must be at least 1"),
        (["norm=dyt", "--steps", "5", "--taper", "5"], "--taper less than --steps"),
        (["norm=dyt", "--lr", "0"], "--lr above 0"),
        (["norm=dyt", "--out", "x"], "--out needs norm=none"),
        (["norm=none", "--out", "."], "--out . exists; choose a new folder"),
        (["norm=none", "--out", "x/y"], "--out x/y: the folder x does not exist"),
    ],
)
def test_invalid_arguments_are_refused_before_a_model_is_loaded(arguments, said, capsys):
    with pytest.raises(SystemExit):
        main(["swap", "--hf", "x", "--text", "x", *arguments])
    assert said in capsys.readouterr().err
