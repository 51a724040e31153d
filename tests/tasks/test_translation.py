"""The translation task: batches, summed losses, evaluation."""

import math
import threading
import unicodedata
from dataclasses import replace

import numpy as np
import pytest

from normlab.data.corpus import REQUIRED, Corpus, ParallelText
from normlab.data.encoded import EncodedPairs, EncodedText
from normlab.distributed.process_group import Shard
from normlab.models.decoding import SearchSettings
from normlab.models.layers import initialize
from normlab.tasks import base
from normlab.tasks import translation as module
from tests.models.small import architecture, norms, placement, unsettle
from tests.tasks.sentences import translation

PAD, BOS, EOS = 0, 1, 2


@pytest.fixture(scope="module")
def task():
    return translation()


def built(task, norm="ln", place="pre", **changes):
    arch = architecture(encoder_layers=1, decoder_layers=1, **changes)
    model = arch.build(task.spec(), placement(place), norms(norm))
    initialize(model, 1)
    unsettle(model, 1)
    return model.double().eval()


def test_a_batch_matches_a_worked_example(task):
    pairs = EncodedPairs(
        EncodedText.from_sentences([[9], [5, 6, 7], [8, 9]]),
        EncodedText.from_sentences([[11, 12], [13], [14, 15, 16]]),
    )
    batch = module.padded(pairs, np.array([2, 1]))
    assert batch.source.tolist() == [[8, 9, EOS, PAD], [5, 6, 7, EOS]]
    real = batch.source_tokens.real(batch.source)
    assert real.tolist() == [[True, True, True, False], [True] * 4]
    assert batch.tgt_in.tolist() == [[BOS, 14, 15, 16], [BOS, 13, EOS, PAD]]
    assert batch.tgt_tokens.real(batch.tgt_in).tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.tgt_tokens.rows.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.tgt_out.tolist() == [14, 15, 16, EOS, 13, EOS]
    assert batch.counts == {"loss": 6} and batch.tokens == 6
    assert batch.positions == 2 * 4 + 2 * 4 and batch.padding == 1 + 2


def forced(model, batch):
    """Return teacher-forced log-probabilities [B, P, V], padding included."""
    source, target = batch.source_tokens, batch.tgt_tokens
    return model.project(model(batch.source, source, batch.tgt_in, target)).log_softmax(-1)


def test_the_loss_sums_over_real_tokens(task):
    model = built(task)
    batch = next(task.train_batches(Shard(0, 1), 1))
    tables = forced(model, batch)[batch.tgt_tokens.real(batch.tgt_in)]
    picked = tables.gather(1, batch.tgt_out[:, None])
    expected = -(0.9 * picked.sum() + 0.1 * tables.mean(-1).sum())
    assert task.losses(model, batch)["loss"].item() == pytest.approx(expected.item(), rel=1e-12)


def test_evaluation_means_are_over_tokens(task):
    model = built(task, "bn")
    scores = task.evaluate(model, "valid", Shard(0, 1))
    pairs = task.data.pairs["valid"]
    batches = [task.batch("valid", [index]) for index in range(len(pairs))]
    tokens = sum(batch.tokens for batch in batches)
    nll = sum(
        -forced(model, batch)[0].gather(1, batch.tgt_out[:, None]).sum().item() for batch in batches
    )
    assert scores["nll"].value == pytest.approx(nll / tokens, rel=1e-9)
    assert scores["perplexity"].value == pytest.approx(math.exp(nll / tokens), rel=1e-9)
    assert scores["loss"].n == tokens and scores["bleu"].n == len(pairs)
    assert not scores["loss"].higher_is_better and scores["bleu"].higher_is_better


def test_a_limit_scores_sentences_spread_over_the_split(task, tmp_path):
    scores = task.evaluate(built(task), "test", Shard(0, 1), outputs=tmp_path / "some.txt", limit=3)
    lines = (tmp_path / "some.txt").read_text("utf-8").splitlines()
    references = [task.data.texts["test"].target[i] for i in (0, 10, 19)]
    assert scores["bleu"].n == len(lines) == 3 < scores["loss"].n < 100
    assert scores["chrf"] == module.corpus_chrf(lines, references)


class Ranks:
    """A process group whose ranks are threads."""

    def __init__(self, size):
        self.barrier = threading.Barrier(size, timeout=60)
        self.given = [None] * size
        self.rank = threading.local()

    def gather(self, value):
        self.given[self.rank.value] = value
        self.barrier.wait()
        everything = list(self.given)
        self.barrier.wait()
        return everything


def test_scores_of_several_ranks_equal_those_of_one_process(task, monkeypatch, tmp_path):
    size = 5  # 4 batches: the fifth rank has none
    model = built(task)
    whole = task.evaluate(model, "test", Shard(0, 1), outputs=tmp_path / "whole.txt")
    ranks = Ranks(size)
    monkeypatch.setattr(module, "gather_objects", ranks.gather)
    monkeypatch.setattr(base, "gather_objects", ranks.gather)
    monkeypatch.setattr(module, "is_main", lambda: ranks.rank.value == 0)
    scores = [None] * size

    def one(rank):
        ranks.rank.value = rank
        scores[rank] = task.evaluate(
            model, "test", Shard(rank, size), outputs=tmp_path / "shards.txt"
        )

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found == scores[0] for found in scores)
    for name, score in whole.items():
        assert scores[0][name].value == pytest.approx(score.value, rel=1e-12), name
        assert scores[0][name].n == score.n
    lines = (tmp_path / "whole.txt").read_text("utf-8")
    assert lines == (tmp_path / "shards.txt").read_text("utf-8") and lines.count("\n") == 20


def test_hypotheses_are_in_the_order_of_the_split(tmp_path):
    # evaluation and translation batch sentences differently, and a batch has one length limit
    task = translation(test_search=SearchSettings(beam=2, length_factor=0.0, length_offset=9))
    model = built(task)
    task.evaluate(model, "test", Shard(0, 1), outputs=tmp_path / "out.txt")
    found = (tmp_path / "out.txt").read_text("utf-8").splitlines()
    assert found == task.translate(model, task.data.texts["test"].source)


def test_an_unknown_split_raises_an_error_that_lists_the_splits(task):
    with pytest.raises(ValueError, match=r"'tset' is not a split; choose from train, valid, test"):
        task.evaluate(built(task), "tset", Shard(0, 1))


@pytest.mark.parametrize("line", ["", "der Hund " * 60])
def test_an_empty_or_too_long_line_raises_an_error_with_its_number(task, line):
    model = built(task, max_positions=50)
    with pytest.raises(ValueError, match=r"line 2 has \d+ tokens, but must have 1 to 49"):
        task.translate(model, ["der Hund .", line])


class OneText(Corpus):
    """A corpus whose splits all have the same lines."""

    name, label, licence = "one", "one", "free"

    def __init__(self, lines, target, form):
        self.languages, self.form, self.lines = ("fi", target), form, lines

    def read(self):
        return {split: ParallelText(self.lines, self.lines) for split in REQUIRED}


CHINESE = [
    "\u6211 \u559c\u6b22 \u5b66\u4e60 \u4e2d\u6587 \u3002",
    "\u4f60 \u5728 \u54ea\u91cc \u4f4f \uff1f",
]
WRONG = [
    "\u6211 \u559c\u6b22 \u5b66\u4e60 \u65e5\u8bed \u3002",
    "\u4f60 \u5728 \u8fd9\u91cc \u4f4f \uff1f",
]


@pytest.mark.parametrize("form", ["raw", "tokenized", "bpe"])
@pytest.mark.parametrize(
    ("codes", "tokenizer"), [("zh cmn zho_Hans yue", "zh"), ("ja jpn", "char"), ("th tha", "char")]
)
def test_text_without_spaces_is_scored_with_its_scripts_tokenizer_in_every_form(
    form, codes, tokenizer
):
    glued = (["".join(line.split()) for line in lines] for lines in (CHINESE, WRONG))
    lines, wrong = (CHINESE, WRONG) if form != "raw" else glued
    found = []
    for code in codes.split():
        task = replace(translation(), corpus=OneText(lines, code, form))
        decoded = wrong if form == "raw" else [line.replace("@@ ", "") for line in wrong]
        plain = task.data.plain(decoded)
        found.append(task.score_lines("test", plain, decoded=decoded))
        assert set(task.score_names()) >= set(found[-1]) and "bleu_tok" not in found[-1]
        assert "bleu_tok" not in task.baselines()
    assert all(scores == found[0] for scores in found)
    assert 20 < found[0]["bleu"].value < 90 and f"tok:{tokenizer}" in found[0]["bleu"].signature


def test_the_unicode_normal_form_of_references_does_not_change_the_scores():
    lines = ["M\u00fchsam \u00fcbt er sch\u00f6ne \u00c4hren .", "Er \u00fcbt M\u00fche ."]
    scores = []
    for form in ("NFC", "NFD"):
        task = translation()
        task.corpus = OneText([unicodedata.normalize(form, x) for x in lines], "de", "raw")
        ids = [task.data.pairs["test"].target[i] for i in range(2)]
        decoded = task.data.target_tokenizer.decode_batch(ids)
        scores.append(task.score_lines("test", decoded, decoded=decoded))
        assert task.baselines()["bleu"] == pytest.approx(100)
    assert scores[0] == scores[1] and scores[0]["bleu_tok"].value == pytest.approx(100)


def test_length_buckets_group_the_sentences_by_their_source_length():
    task = translation(length_buckets=[16, 18])
    lengths = task.lengths("test")
    groups = np.searchsorted([16, 18], lengths[:, 0])
    assert set(groups.tolist()) == {0, 1, 2}
    model = built(task)
    scores = task.evaluate(model, "test", Shard(0, 1))
    for number, name in enumerate(("length_1_16", "length_17_18", "length_over_18")):
        chosen = np.flatnonzero(groups == number).tolist()
        batch = task.batch("test", chosen)
        found = scores[f"{name}/loss"]
        assert found.n == lengths[chosen, 1].sum()
        assert found.value == pytest.approx(task.losses(model, batch)["loss"].item() / batch.tokens)
