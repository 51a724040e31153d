"""Two experiments on the sentences of their test: sacreBLEU's figures, or a refusal with reason."""

import json
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from normlab.commands.compare import main
from normlab.config import compose, to_dict
from normlab.metrics.bleu import corpus_bleu
from normlab.records.record import BudgetUsed, Outcome, RunRecord, Score
from normlab.records.store import RunStore, run_id
from tests.tiny_runs import tiny, write_corpus


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Return a folder of parallel text whose test set has enough sentences to draw from."""
    folder = write_corpus(tmp_path_factory.mktemp("text"))
    more = write_corpus(tmp_path_factory.mktemp("more"), train=30, seed=2)
    for language in ("de", "en"):
        (folder / f"test.{language}").write_bytes((more / f"train.{language}").read_bytes())
    return folder


@pytest.fixture(scope="module")
def checksums(text):
    from normlab.build import build_task

    task = build_task(to_dict(compose(tiny(text, text))))
    return task.data.description["checksums"]


@pytest.fixture
def runs(tmp_path, monkeypatch, text, checksums):
    """Return a store with seeds 1 to 3 of `ln` and 2 to 4 of `bn`, which loses more words."""
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


def write(store, config, hypotheses, references, checksums):
    record = RunRecord(
        run_id=run_id(config),
        seed=config["seed"],
        config=config,
        outcome=Outcome("finished", 12),
        scores={"test/bleu": corpus_bleu(hypotheses, references)},
        stability={},
        budget=BudgetUsed(12, 100, 1.0, 100.0, 0),
        environment={},
        data={"checksums": checksums},
        params=1,
    )
    folder = store.run_dir(config)
    store.write(record, folder)
    (folder / "hypotheses.txt").write_text("".join(line + "\n" for line in hypotheses))


def places(store):
    """Return the folders of `ln` and `bn`."""
    labels = [next(store.root.glob(f"*-{norm}-pre-*")) for norm in ("ln", "bn")]
    return [str(label) for label in labels]


def changed(folder, **changes):
    path = folder / "record.json"
    record = RunRecord.from_json(path.read_text(), origin="here")
    path.write_text(replace(record, **changes).to_json())


def test_each_seed_and_all_together_and_what_has_no_partner(runs, capsys, text):
    ln, bn = places(runs)
    assert main([ln, bn, "--bootstrap"]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["2", "3", "all"]
    for seed in ("2", "3"):
        files = [f"{place}/seed{seed}/hypotheses.txt" for place in (ln, bn)]
        command = [sys.executable, "-m", "sacrebleu", str(text / "test.en"), "-i", *files]
        command += ["-m", "bleu", "--paired-bs", "-f", "json", "-w", "9"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        one, two = (row["BLEU"] for row in json.loads(done.stdout))
        gap = two["score"] - one["score"]
        said = [f"{one['score']:.2f}", f"{two['score']:.2f}", f"{gap:+.2f}"]
        assert rows[seed] == [*said, f"{two['p_value']:.4f}"]
    assert "paired bootstrap, 1000 samples of the 30 sentences (nrefs:1|bs:1000" in out
    assert "(t test)" in out
    label = ln.removeprefix("runs/")
    assert f"seed 1 of {label} has no partner" in out
    assert f"seed 4 of {bn.removeprefix('runs/')} has no partner" in out


def test_the_first_is_what_the_other_is_compared_with(runs, capsys):
    ln, bn = places(runs)
    argv = [f"{ln}/seed2", f"{bn}/seed2"]
    assert main([*argv, "--bootstrap", "--markdown"]) == 0
    first = capsys.readouterr().out
    assert main([*argv[::-1], "--bootstrap", "--markdown"]) == 0
    second = capsys.readouterr().out
    one, two = (out.splitlines()[2].strip("| ").split(" | ") for out in (first, second))
    assert one[1:3] == two[2:0:-1] and float(one[3]) == -float(two[3])
    assert "all" not in first.split() and "t test" not in first


def test_seeds_that_diverged_are_left_out_and_named(runs, capsys):
    ln, bn = places(runs)
    folder = runs.root / bn.removeprefix("runs/") / "seed3"
    changed(folder, scores={}, outcome=Outcome("diverged", 3))
    assert main([ln, bn, "--bootstrap"]) == 0
    out = capsys.readouterr().out
    assert "seed3 is left out: it ended as diverged" in out and "seed 1 3 of" in out


def test_text_that_was_moved_is_looked_for_where_it_is_said_to_be(runs, capsys, tmp_path, text):
    argv = [*places(runs), "--bootstrap"]
    for folder, record in runs.entries():
        config = {**record.config, "data_dir": "gone"}
        config["task"]["corpus"]["data_dir"] = "gone"
        changed(folder, config=config)
    with pytest.raises(ValueError, match=r"references cannot be had: no folder gone .*--data-dir"):
        main(argv)
    assert main([*argv, "--data-dir", str(text)]) == 0
    other = write_corpus(tmp_path / "other", seed=7)
    with pytest.raises(ValueError, match=r"tested on other text than data_dir=.*other holds now"):
        main([*argv, "--data-dir", str(other)])


def first_of(runs, norm):
    return next(folder for folder, record in runs.entries() if record.choice("norm") == norm)


def other_test_set(folder):
    changed(folder, data={"checksums": {"test": {"de": "a", "en": "b"}}})


def other_arithmetic(folder):
    environment = RunStore(folder).read(folder).environment
    changed(folder, environment={**environment, "instruction_set": "AVX2"})


def other_signature(folder):
    value = RunStore(folder).read(folder).scores["test/bleu"]
    changed(folder, scores={"test/bleu": replace(value, signature="nrefs:1|case:lc|tok:none")})


def other_value(folder):
    value = RunStore(folder).read(folder).scores["test/bleu"]
    changed(folder, scores={"test/bleu": replace(value, value=value.value + 0.5)})


def no_translations(folder):
    (folder / "hypotheses.txt").unlink()


def a_line_too_few(folder):
    lines = (folder / "hypotheses.txt").read_text().splitlines(keepends=True)
    (folder / "hypotheses.txt").write_text("".join(lines[1:]))


def bytes_of_no_text(folder):
    (folder / "hypotheses.txt").write_bytes(b"a\xff\n" * 30)


def another_task(folder):
    changed(folder, scores={"test/mlm_accuracy": Score(0.1, True, 3)})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (other_test_set, r"cannot be compared: their test sets are"),
        (other_arithmetic, r"cannot be compared: seed 2 was computed in .* and .* AVX2"),
        (other_signature, r"cannot be compared: test/bleu was scored as .* and nrefs:1\|case:lc"),
        (other_value, r"hypotheses.txt scores [\d.]+ \(nrefs.* its record says"),
        (no_translations, r"hypotheses.txt: no such file; .*normlab eval"),
        (a_line_too_few, r"hypotheses.txt: 29 lines, and test/bleu was counted over 30"),
        (bytes_of_no_text, r"hypotheses.txt: not UTF-8 at byte 1"),
        (another_task, r"has no score test/bleu: the bootstrap is for runs of translation"),
    ],
)
def test_what_is_not_of_one_test_is_refused_with_the_reason(runs, damage, message):
    folder = first_of(runs, "bn")
    damage(folder)
    with pytest.raises(ValueError, match=message):
        main([*places(runs), "--bootstrap"])


def test_sides_that_make_no_pairs_are_refused(runs):
    ln, bn = places(runs)
    with pytest.raises(ValueError, match=r"no seed in common: 1 and 4"):
        main([f"{ln}/seed1", f"{bn}/seed4", "--bootstrap"])
    with pytest.raises(ValueError, match=r"compares two experiments, and there are 1: .*-ln-pre"):
        main([f"{ln}/seed1", f"{ln}/seed2", "--bootstrap"])
    changed(runs.root / bn.removeprefix("runs/") / "seed4", outcome=Outcome("diverged", 1))
    with pytest.raises(ValueError, match=r"ended as diverged; nothing is left to compare"):
        main([ln, f"{bn}/seed4", "--bootstrap"])


def test_options_that_do_not_go_together_are_named(runs):
    with pytest.raises(ValueError, match="leave out --score"):
        main(["--bootstrap", "--score", "test/bleu"])
    with pytest.raises(ValueError, match="--data-dir is for --bootstrap"):
        main(["--data-dir", "x"])
