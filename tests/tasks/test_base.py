"""The untrained baselines of scores, compared with models that always make the same guess."""

import math

import numpy as np
import pytest
import torch

from tests.tasks.sentences import translation
from tests.tasks.test_lm import lm
from tests.tasks.test_mlm import mlm


def entropy(targets: torch.Tensor) -> float:
    share = np.bincount(targets.numpy()) / len(targets)
    return -sum(p * math.log(p) for p in share.tolist() if p)


def test_the_baseline_of_a_language_model_is_the_unigram_entropy_of_its_targets():
    task = lm()
    everything = task.batch("test", range(len(task.lengths("test"))))
    baselines, nats = task.baselines(), entropy(everything.tgt_out)
    assert baselines["loss"] == pytest.approx(nats)
    assert baselines["perplexity"] == pytest.approx(math.exp(nats))
    characters = float(everything.characters.sum())
    bits = nats * everything.tokens / math.log(2) / characters
    assert baselines["bits_per_character"] == pytest.approx(bits)


def test_the_baseline_of_a_masked_model_uses_the_frequencies_of_all_maskable_tokens():
    task, all_masked = mlm(), mlm(mask_share=1.0)
    batch = all_masked.batch("test", range(len(task.lengths("test"))))
    baselines, nats = task.baselines(), entropy(batch.labels)
    share = np.sort(np.bincount(batch.labels.numpy()))[::-1] / len(batch.labels)
    assert baselines["mlm_loss"] == pytest.approx(nats)
    assert baselines["mlm_accuracy"] == pytest.approx(share[0])
    assert baselines["mlm_accuracy_top5"] == pytest.approx(share[:5].sum())
    follows = float(batch.is_random_next.float().mean())
    assert baselines["nsp_accuracy"] == pytest.approx(max(follows, 1 - follows))
    assert baselines["nsp_loss"] == pytest.approx(entropy(batch.is_random_next))
    assert baselines["loss"] == pytest.approx(baselines["mlm_loss"] + baselines["nsp_loss"])


def test_the_baseline_of_translation_scores_a_copy_of_the_source():
    task = translation()
    baselines = task.baselines()
    copied = task.score_lines("test", task.data.texts["test"].source)
    assert {name: baselines[name] for name in ("bleu", "chrf")} == {
        name: copied[name].value for name in ("bleu", "chrf")
    }
    assert "length_ratio" not in baselines and 0 < baselines["chrf"] < 50
