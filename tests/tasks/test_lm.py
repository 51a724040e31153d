"""Causal language modelling: losses, scores, single-token decoding, and generated text."""

import math

import pytest
import torch
from torch import nn

from normlab.data.vocabulary import LINE_BREAK, DocumentTokenizer
from normlab.distributed.process_group import Shard
from normlab.models.decoding import SamplingSettings, continuation
from normlab.models.text import CausalLM
from normlab.norms.tokens import Tokens
from normlab.tasks.lm import LanguageModeling, LengthChange
from tests.tasks.sentences import SmallDocuments, text_model, values_of

ALONE = Shard(0, 1)
BOS, EOS = DocumentTokenizer.bos_id, DocumentTokenizer.eos_id


class FewWords(SmallDocuments):
    """Two documents of 9 + 4 and of 3 characters, counting one after each sentence."""

    name = "few"

    def documents(self):
        yield "test", ("the blue", "a a")
        yield "test", ("na",)
        yield from ((split, text) for split, text in super().documents() if split != "test")


class Separated(SmallDocuments):
    """Documents with a line break and a line separator, as in a text of characters."""

    name = "separated"

    def documents(self):
        for split, text in super().documents():
            yield split, [*text[:-1], f"{LINE_BREAK}\u2028{text[-1]}"]


def lm(corpus=None, **changes):
    values = {
        "vocab_size": 330,
        "pieces": "bpe",
        "lowercase": False,
        "max_length": 24,
        "eval_max_length": None,
        "length_change": LengthChange(None, None),
        "batch_size": 8,
        "max_tokens": None,
        "batching": "bucket",
        "accumulate": 1,
        "eval_batch_size": 16,
        "test_batch_sizes": [1, 8],
        "test_eval_stats": ["batch", "recalibrated"],
        "length_buckets": [12, 20],
        "targets": {},
        "one_by_one": 4,
    }
    return LanguageModeling(corpus=corpus or SmallDocuments(), **{**values, **changes})


@pytest.fixture(scope="module")
def task():
    return lm()


def test_a_batch_contains_its_windows_and_their_next_tokens():
    task = lm(FewWords())
    tokens = task.data.splits["test"].text.ids.tolist()
    ends = task.data.splits["test"].text.offsets[task.data.splits["test"].documents]
    first, second = tokens[: ends[1]], tokens[ends[1] :]
    batch = task.batch("test", [1, 0])
    real = batch.real_tokens.real(batch.ids)
    assert [x[valid].tolist() for x, valid in zip(batch.ids, real, strict=True)] == [
        [BOS, *second],
        [BOS, *first],
    ]
    assert batch.tgt_out.tolist() == [*second, EOS, *first, EOS]
    assert batch.characters.tolist() == [3, 13]
    assert batch.counts == {"loss": len(tokens) + 2} and batch.tokens == len(tokens) + 2
    assert batch.positions == batch.ids.numel() == batch.tokens + batch.padding
    wide = task.batch("test", [1, 0], padding=0.8)
    assert wide.padding / wide.positions == pytest.approx(0.8, abs=0.03)
    assert wide.tgt_out.tolist() == batch.tgt_out.tolist()


def test_every_token_is_scored_once_regardless_of_the_batch_size(task):
    model = text_model(task, "bn")
    data = task.data.splits["valid"]
    scores = [task.evaluate(model, "valid", ALONE, batch_size=size) for size in (1, 3, 64)]
    assert {score["loss"].n for score in scores} == {len(data.text.ids) + len(data)}
    characters = int(data.characters.sum()) + len(data.text)
    assert {score["bits_per_character"].n for score in scores} == {characters}
    for other in scores[1:]:
        assert values_of(other) == pytest.approx(values_of(scores[0]), rel=1e-10)
    assert scores[0]["perplexity"].value == pytest.approx(math.exp(scores[0]["loss"].value))
    assert not any(score.higher_is_better for score in scores[0].values())


def test_a_length_change_that_does_not_fit_is_refused_before_training():
    change = LengthChange(step=6, max_length=24)
    values = {"max_length": 12, "length_change": change, "batch_size": None}
    with pytest.raises(ValueError, match=r"length_change.max_length=24 is not possible: sentence"):
        lm(**values, max_tokens=20).train_batches(ALONE, 1)
    lm(**values, max_tokens=24).train_batches(ALONE, 1)


def test_bits_per_character_match_a_worked_example():
    task = lm(FewWords(), length_buckets=[4])
    model = text_model(task, "none")
    with torch.no_grad():
        model.decoder.embedding.tokens.weight.zero_()  # every token is equally likely
    bits, tokens = math.log2(len(task.data.tokenizer)), len(task.data.splits["test"].text.ids) + 2
    scores = task.evaluate(model, "test", ALONE)
    assert scores["bits_per_character"].value == pytest.approx(tokens * bits / 16)
    assert scores["perplexity"].value == pytest.approx(len(task.data.tokenizer))
    shorter = len(task.data.splits["test"].text[2]) + 1
    assert shorter <= 4
    found = scores["length_1_4/bits_per_character"]
    assert (found.value, found.n) == (pytest.approx(shorter * bits / 3), 3)


@pytest.mark.parametrize(("norm", "exact"), [("bn", True), ("in", False)])
def test_the_one_by_one_loss_equals_teacher_forcing_unless_the_norm_leaks(task, norm, exact):
    model = text_model(task, norm)
    scores = task.evaluate(model, "test", ALONE)
    found, forced = scores["one_by_one/loss"], scores["one_by_one/teacher_forced_loss"]
    assert found.n == forced.n < scores["loss"].n
    if exact:
        assert found.value == pytest.approx(forced.value, rel=1e-10)
    else:
        assert abs(found.value - forced.value) > 1e-3
    assert not any("one_by_one" in name for name in task.evaluate(model, "valid", ALONE))
    again = task.evaluate(model, "test", ALONE, batch_size=1)
    assert not any("one_by_one" in name for name in again)


def test_at_most_limit_windows_are_scored_one_token_at_a_time(task):
    scores = task.evaluate(text_model(task, "ln"), "test", ALONE, limit=1)
    assert scores["one_by_one/loss"].n == scores["loss"].n == task.batch("test", [0]).tokens


def sampling(**changes):
    return SamplingSettings(**{"max_tokens": 8, "temperature": 1.0, "top_k": None, **changes})


def prompt_ids(task, prompt):
    return [BOS, *(i for ids, _ in task.data.tokenizer.encode(prompt.splitlines()) for i in ids)]


def forced(task, model, prompt, count):
    """Return the most likely tokens after a prompt, each found by teacher forcing."""
    ids = prompt_ids(task, prompt)
    for _ in range(count):
        row = torch.tensor([ids])
        logits = model.project(model(row, Tokens(torch.ones_like(row, dtype=torch.bool))))[0, -1]
        logits[[i for i in range(DocumentTokenizer.first_ordinary) if i != EOS]] = -math.inf
        if int(logits.argmax()) == EOS:
            break
        ids.append(int(logits.argmax()))
    return ids


@pytest.mark.parametrize(
    ("pieces", "norm", "settings"),
    [("wordpiece", "bn", {"temperature": 0.0}), ("bpe", "in", {"top_k": 1})],
)
@torch.no_grad()
def test_greedy_generation_takes_the_most_likely_token_of_teacher_forcing(pieces, norm, settings):
    task = lm(pieces=pieces, vocab_size={"bpe": 330, "wordpiece": 70}[pieces])
    model = text_model(task, norm)
    prompt = "the blue\na river"
    text = task.generate(model, prompt, sampling(**settings), seed=1)
    ids = forced(task, model, prompt, 8)
    decode = task.data.tokenizer.decode
    expected = decode(ids)[len(decode(prompt_ids(task, prompt))) :]
    assert text == expected.rstrip("\N{REPLACEMENT CHARACTER}")


class Fixed(CausalLM):
    """A model whose logits are the same at every step."""

    def __init__(self, logits, max_positions=20):
        nn.Module.__init__(self)
        self.logits = nn.Parameter(logits)
        self.max_positions = max_positions
        self.fed = []

    def start_decoding(self, count, *, max_length):
        return None

    def decode_step(self, ids, state):
        self.fed += ids.tolist()
        return self.logits[None].clone()


def fixed(task, max_positions=20, **likely):
    """Return a model whose likely tokens are `word`, an ordinary token, and `end`, the end mark."""
    logits = torch.zeros(len(task.data.tokenizer))
    word = prompt_ids(task, "the")[1]
    for name, value in likely.items():
        logits[{"word": word, "end": EOS}[name]] = value
    logits[[i for i in range(DocumentTokenizer.first_ordinary) if i != EOS]] = 60.0
    return Fixed(logits, max_positions)


@pytest.mark.parametrize(("top_k", "fewest", "most"), [(None, 50, 400), (5, 2, 5)])
def test_special_tokens_are_never_drawn(task, top_k, fewest, most):
    model = fixed(task, max_positions=400, word=1.0)
    special = [i for i in range(DocumentTokenizer.first_ordinary) if i != EOS]
    options = {"special": special, "eos_id": EOS, "max_positions": 400}
    settings = sampling(top_k=top_k, max_tokens=150)
    tokens = {t for s in range(3) for t in continuation(model, [BOS], settings, seed=s, **options)}
    assert fewest <= len(tokens) <= most and tokens <= set(task.data.tokenizer.ordinary)


@pytest.mark.parametrize(("max_tokens", "count"), [(5, 5), (100, 19)])
def test_generation_stops_at_max_tokens_and_at_the_last_position(task, max_tokens, count):
    model = fixed(task, word=50.0)
    settings = sampling(max_tokens=max_tokens)
    assert task.generate(model, "the", settings, seed=0) == " the" * count
    assert len(model.fed) == 1 + count <= 20


@pytest.mark.parametrize(
    ("pieces", "read"),
    [("characters", "the\n\nriver\u2028a"), ("bpe", "the river\u2028a")],
)
def test_a_prompt_has_the_line_breaks_that_the_model_was_trained_with(pieces, read):
    task = lm(pieces=pieces, corpus=Separated())
    model = fixed(task, word=50.0)
    task.generate(model, "the\n\nriver\u2028a", sampling(max_tokens=1), seed=0)
    assert task.data.tokenizer.decode(model.fed[1:]) == read


def test_a_prompt_that_leaves_no_room_is_refused(task):
    model = fixed(task, max_positions=4, word=50.0)
    assert task.generate(model, "a a a", sampling(), seed=0) == " the"
    with pytest.raises(ValueError, match="the prompt has 4 tokens, but the model takes at most 3"):
        task.generate(model, "a a a a", sampling(), seed=0)


def test_a_character_of_several_bytes_is_generated_whole(task):
    first, second = task.data.tokenizer.encode(["\u00df"])[0][0][-2:]
    model = fixed(task)

    def step(ids, state):
        logits = torch.zeros(len(task.data.tokenizer))
        logits[second if int(ids) == first else first] = 50.0
        return logits[None]

    model.decode_step = step
    text = task.generate(model, "a", sampling(max_tokens=5, temperature=0.0), seed=0)
    assert text == "\u00df\u00df"
