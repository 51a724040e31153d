"""Each walk in docs/explanation/walks.md lists its files in the order in which they are entered."""

import inspect
import re
import shutil
import sys
from contextlib import contextmanager

import pytest
import torch

from normlab.claims.claim import load_all
from normlab.claims.evidence import EvidenceStore
from normlab.claims.ledger import check_plans, ledger
from normlab.claims.verdict import CLAIM_VERDICTS
from normlab.cli import main
from normlab.config.compose import compose
from normlab.config.folders import CONFIG_DIR
from normlab.config.run_config import to_dict
from normlab.training.build import build_task
from normlab.training.trainer import Trainer
from tests.docs.pages import ROOT
from tests.tiny_runs import QUICK, tiny, write_corpus
from tests.training.trainers import trainer_of

PACKAGE = f"{ROOT}/normlab/"
PAGE = (ROOT / "docs" / "explanation" / "walks.md").read_text()
WALKS = {
    part.partition("\n")[0]: re.findall(r"^\d+\. `([\w/]+)\.py`", part, re.MULTILINE)
    for part in PAGE.split("\n## ")[1:4]
}
COUNTED = re.search(r"enters (\d+), (\d+) and (\d+) files.*? (\d+) of them", PAGE, re.DOTALL)
MOST = {"A line of text to a loss": 35, "A command line to a gradient": 66}
MOST |= {"The last step to a verdict": 97}
MOST_OF_RECORDS = 30
"""The files that each walk enters at most, including those that the page leaves out, and those that
are entered between the first record and the last verdict."""


def imports(frame):
    """Return whether a module of the package is being imported; it may then call functions."""
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(PACKAGE)


@contextmanager
def entered(files):
    """List the package's files, within the block, in the order of the first call into each."""

    def look(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:  # neither module nor class
            name = code.co_filename.removeprefix(PACKAGE).removesuffix(".py")
            if code.co_filename.startswith(PACKAGE) and name not in files and not imports(frame):
                files.append(name)

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """Return the files that the code of each walk enters."""
    place = tmp_path_factory.mktemp("walk")
    corpus = write_corpus(place / "text", seed=77)  # no other test has it in its cache
    words = tiny(corpus, place / "runs", *QUICK, "norm=bn", "budget.steps=1", "validate.every=1")
    words = [*words, "probe=[]"]
    found = {walk: [] for walk in WALKS}
    text, gradient, verdict = found.values()
    config = to_dict(compose(words))
    task = build_task(config)
    with entered(text):
        assert task.data
    trainer = trainer_of(config, place)
    with entered(text):
        trainer.step()
    with pytest.MonkeyPatch.context() as patch:
        backward, fit, later = torch.Tensor.backward, Trainer.fit, entered(verdict)

        def ends_a_walk(*arguments, **options):
            sys.setprofile(None)
            return backward(*arguments, **options)

        def begins_a_walk(trainer):
            ended = fit(trainer)
            later.__enter__()
            return ended

        patch.setattr(torch.Tensor, "backward", ends_a_walk)
        patch.setattr(Trainer, "fit", begins_a_walk)
        with entered(gradient):
            assert main(["train", *words]) == 0
    shutil.copytree(ROOT / "results" / "length_change", place / "results" / "length_change")
    with entered(verdict):
        main(["claims", "--verify", "--results", str(place / "results")])
    return found


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Return the files between the first record and the last verdict."""
    files = []
    results = tmp_path_factory.mktemp("results")
    shutil.copytree(ROOT / "results" / "length_change", results / "length_change")
    claims, evidence = load_all(CONFIG_DIR / "claim"), EvidenceStore(CONFIG_DIR)
    check_plans(claims, evidence)
    with entered(files):
        evidence.read(results)
        assert {claim.verdict for claim in ledger(claims, evidence)} <= set(CLAIM_VERDICTS)
    return files


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_lists_its_files_in_the_order_in_which_code_enters_them(walk, walked):
    named, files = WALKS[walk], walked[walk]
    assert named and named == [file for file in files if file in named]
    assert len(files) <= MOST[walk]


def test_few_files_are_entered_between_the_first_record_and_the_last_verdict(judged):
    assert "records/packed" in judged and "claims/decision" in judged
    assert "claims/texts" not in judged and "formats" not in judged, "decisions are numbers"
    assert len(judged) <= MOST_OF_RECORDS


def test_the_page_states_how_many_files_a_walk_enters():
    assert COUNTED and [int(n) for n in COUNTED.groups()] == [*MOST.values(), MOST_OF_RECORDS]
