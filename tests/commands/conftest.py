"""Translation runs on a corpus in a folder. Some are trained, some made up."""

import random

import pytest

from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.metrics.bleu import bleu_scores
from normlab.records.code import NUMERICS
from normlab.records.record import BudgetUsed, Outcome, RunRecord, fingerprint
from normlab.records.store import RunStore, run_id
from normlab.training import train
from tests.tiny_runs import QUICK, tiny, write_corpus

# The longest sentence of a batch limits the output length of all; 50 tokens more exceed it.
FINISHED = ("norm=bn", "norm.momentum=0.01", "task.test_search.length_offset=50")


@pytest.fixture(scope="session")
def finished(corpus, tmp_path_factory):
    """Return the folder of a batch-norm run whose running statistics are far from a batch's."""
    return _trained(corpus, tmp_path_factory.mktemp("finished"), *FINISHED)


@pytest.fixture(scope="session")
def recalibrating(corpus, tmp_path_factory):
    """Return the folder of a run that tested averaged weights with recalibrated statistics."""
    folder = tmp_path_factory.mktemp("recalibrating")
    return _trained(corpus, folder, *FINISHED, *QUICK, "validate.average=2")


def _trained(corpus, runs, *overrides):
    train(compose(tiny(corpus, runs, *overrides)))
    (record,) = runs.rglob("record.json")
    return record.parent


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Return a folder with parallel text whose test set is large enough to sample from."""
    folder = write_corpus(tmp_path_factory.mktemp("text"))
    more = write_corpus(tmp_path_factory.mktemp("more"), train=30, seed=2)
    for language in ("de", "en"):
        (folder / f"test.{language}").write_bytes((more / f"train.{language}").read_bytes())
    return folder


@pytest.fixture(scope="module")
def checksums(text):
    from normlab.training.build import build_task

    task = build_task(to_dict(compose(tiny(text, text))))
    return task.data.description["checksums"]


@pytest.fixture
def translated(tmp_path, monkeypatch, text, checksums):
    """Return a store with seeds 1 to 3 of `ln` and 2 to 4 of `bn`; `bn` drops more words."""
    monkeypatch.chdir(tmp_path)
    store = RunStore("runs")
    references = (text / "test.en").read_text().splitlines()
    for norm, seeds, share in (("ln", (1, 2, 3), 0.1), ("bn", (2, 3, 4), 0.14)):
        config = to_dict(compose(tiny(text, store.root, f"norm={norm}")))
        for seed in seeds:
            rng = random.Random(seed)
            kept = ([w for w in line.split() if rng.random() > share] for line in references)
            write(
                store, {**config, "seed": seed}, [" ".join(w) for w in kept], references, checksums
            )
    return store


def write(store, config, hypotheses, references, checksums, **options):
    record = RunRecord(
        run_id=run_id(config),
        fingerprint=fingerprint(config),
        numerics=NUMERICS,
        seed=config["seed"],
        config=config,
        outcome=Outcome("finished", 12),
        scores={"test/bleu": bleu_scores(hypotheses, references, **options)["bleu"]},
        stability={},
        budget=BudgetUsed(12, 100, 1.0, 100.0, 0),
        environment={},
        data={"checksums": checksums},
        params=1,
    )
    folder = store.run_dir(config)
    store.write(record, folder)
    (folder / "hypotheses.txt").write_text("".join(line + "\n" for line in hypotheses))
