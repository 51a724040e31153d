"""Two experiments on the sentences of their test: sacreBLEU's figures, or a refusal with reason."""

import json
import subprocess
import sys

import pytest
from msgspec.structs import replace

from normlab.commands.compare import main
from normlab.records.record import Outcome, RunRecord, Score
from normlab.records.store import RunStore
from tests.tiny_runs import write_corpus


def places(store):
    """Return the folders of `ln` and `bn`."""
    labels = [next(store.root.glob(f"*-{norm}-pre-*")) for norm in ("ln", "bn")]
    return [str(label) for label in labels]


def changed(folder, **changes):
    path = folder / "record.json"
    record = RunRecord.from_json(path.read_text(), origin="here")
    path.write_text(replace(record, **changes).to_json())


def test_each_seed_and_all_together_and_what_has_no_partner(translated, capsys, text):
    ln, bn = places(translated)
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
    out = " ".join(out.split())
    assert "paired bootstrap, 1000 samples of the 30 sentences (nrefs:1|bs:1000" in out
    assert "(t test)" in out
    label = ln.removeprefix("runs/")
    assert f"seed 1 of {label} has no partner" in out
    assert f"seed 4 of {bn.removeprefix('runs/')} has no partner" in out


def test_the_sign_and_the_baseline_are_those_of_compare(translated, capsys):
    """Other row minus baseline, which is layer norm, whichever run is named first."""
    ln, bn = places(translated)
    argv = [f"{bn}/seed2", f"{ln}/seed2", "--markdown"]
    assert main([*argv, "--bootstrap"]) == 0
    seed, _, _, gap, _ = capsys.readouterr().out.splitlines()[2].strip("| ").split(" | ")
    assert main([*argv, "--score", "test/bleu"]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    (own,) = [cells for cells in rows if cells[0] == "| bn" and len(cells) < 6]
    assert seed == "2" and gap == own[1]
    assert main([*argv, "--bootstrap", "--baseline", "bn"]) == 0
    out = capsys.readouterr().out
    assert float(out.splitlines()[2].split(" | ")[3]) == -float(gap)
    assert "all" not in out.split() and "t test" not in out


def test_scores_at_the_untrained_baseline_are_named(translated, capsys):
    argv = places(translated)
    for folder, record in translated.entries():
        low = 100.0 if record.choice("norm") == "bn" else 0.0
        changed(folder, floors={"bleu": low})
    assert main([*argv, "--bootstrap"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "NOT CLEAR OF THE UNTRAINED BASELINE: bn: test/bleu" in out
    assert "BASELINE: ln" not in out


def test_seeds_that_diverged_are_left_out_and_named(translated, capsys):
    ln, bn = places(translated)
    folder = translated.root / bn.removeprefix("runs/") / "seed3"
    changed(folder, scores={}, outcome=Outcome("diverged", 3))
    assert main([ln, bn, "--bootstrap"]) == 0
    out = capsys.readouterr().out
    assert "seed3 is left out: it ended as diverged" in out and "seed 1 3 of" in out


def test_text_that_was_moved_is_looked_for_where_it_is_said_to_be(
    translated, capsys, tmp_path, text
):
    argv = [*places(translated), "--bootstrap"]
    for folder, record in translated.entries():
        config = {**record.config, "data_dir": "gone"}
        config["task"]["corpus"]["data_dir"] = "gone"
        changed(folder, config=config)
    with pytest.raises(
        ValueError, match=r"text of the test cannot be had: no folder gone .*--data-dir"
    ):
        main(argv)
    assert main([*argv, "--data-dir", str(text)]) == 0
    other = write_corpus(tmp_path / "other", seed=7)
    with pytest.raises(ValueError, match=r"tested on other text than data_dir=.*other holds now"):
        main([*argv, "--data-dir", str(other)])


def first_of(translated, norm):
    return next(folder for folder, record in translated.entries() if record.choice("norm") == norm)


def other_data(folder):
    data = RunStore(folder).read(folder).data
    changed(folder, data={"checksums": {**data["checksums"], "train": {"de": "a", "en": "b"}}})


def other_steps(folder):
    for seed in folder.parent.iterdir():
        config = RunStore(seed).read(seed).config
        changed(seed, config={**config, "budget": {**config["budget"], "steps": 9}})


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


def bytes_of_no_text(folder):
    (folder / "hypotheses.txt").write_bytes(b"a\xff\n" * 30)


def another_task(folder):
    changed(folder, scores={"test/mlm_accuracy": Score(0.1, True, 3)})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (other_data, r"not comparable: data.checksums"),
        (other_steps, r"cannot be compared: budget.steps 12, the baseline's 9"),
        (other_arithmetic, r"cannot be compared: seed 2 has different arithmetic .*; .* AVX2"),
        (other_signature, r"test/bleu was computed in several ways"),
        (other_value, r"hypotheses.txt scores [\d.]+ \(nrefs.* its record says"),
        (no_translations, r"hypotheses.txt: no such file; .*normlab eval"),
        (bytes_of_no_text, r"hypotheses.txt: not UTF-8 at byte 1"),
        (another_task, r"has no score test/bleu: the bootstrap is for runs of translation"),
    ],
)
def test_what_is_not_of_one_test_is_refused_with_the_reason(translated, damage, message):
    folder = first_of(translated, "bn")
    damage(folder)
    with pytest.raises(ValueError, match=message):
        main([*places(translated), "--bootstrap"])


def test_sides_that_make_no_pairs_are_refused(translated):
    ln, bn = places(translated)
    with pytest.raises(ValueError, match=r"no seed in common: 1 and 4"):
        main([f"{ln}/seed1", f"{bn}/seed4", "--bootstrap"])
    with pytest.raises(ValueError, match=r"compares two experiments, and there are 1: .*-ln-pre"):
        main([f"{ln}/seed1", f"{ln}/seed2", "--bootstrap"])
    changed(translated.root / bn.removeprefix("runs/") / "seed4", outcome=Outcome("diverged", 1))
    with pytest.raises(ValueError, match=r"ended as diverged; nothing is left to compare"):
        main([ln, f"{bn}/seed4", "--bootstrap"])


def test_options_that_do_not_go_together_are_named(translated):
    with pytest.raises(ValueError, match="leave out --score"):
        main(["--bootstrap", "--score", "test/bleu"])
    with pytest.raises(ValueError, match="--data-dir is for --bootstrap"):
        main(["--data-dir", "x"])
