"""The bootstrap of two experiments agrees with sacreBLEU, or an error says why it cannot run."""

import json
import subprocess
import sys

import pytest
from msgspec.structs import replace

from normlab.commands.compare import main
from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.data.folder_corpus import FolderCorpus
from normlab.records.record import Outcome, RunRecord
from normlab.records.store import RunStore, read_record
from tests.commands.conftest import write
from tests.tiny_runs import tiny, write_corpus


def places(store):
    """Return the folders of `ln` and `bn`."""
    labels = [next(store.root.glob(f"*-{norm}-pre-*")) for norm in ("ln", "bn")]
    return [str(label) for label in labels]


def changed(folder, **changes):
    path = folder / "record.json"
    record = RunRecord.from_json(path.read_text(), origin="here")
    path.write_text(replace(record, **changes).to_json())


def rows_of(out):
    """Return the cells of each row of a Markdown table, by the row's first cell."""
    lines = [line.strip("| ").split(" | ") for line in out.splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in lines[2:]}


def shown(capsys, *argv):
    assert main([*argv, "--bootstrap", "--markdown"]) == 0
    return capsys.readouterr().out


def test_the_bootstrap_gives_the_same_numbers_as_sacrebleu(translated, capsys, text):
    ln, bn = places(translated)
    out = shown(capsys, ln, bn)
    rows = rows_of(out)
    assert [*rows] == ["2", "3", "all"]
    files = [f"{place}/seed2/hypotheses.txt" for place in (ln, bn)]
    command = [sys.executable, "-m", "sacrebleu", str(text / "test.en"), "-i", *files]
    command += ["-m", "bleu", "--paired-bs", "-f", "json", "-w", "9"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    one, two = (row["BLEU"] for row in json.loads(done.stdout))
    said = [f"{one['score']:.2f}", f"{two['score']:.2f}", f"{two['score'] - one['score']:+.2f}"]
    assert rows["2"] == [*said, f"{two['p_value']:.4f}"]
    assert "paired bootstrap, 1000 samples of the sentences (nrefs:1|bs:1000" in out
    assert "(t test)" in out and "untrained baseline" not in out


def test_the_baseline_and_not_the_argument_order_sets_the_sign_of_a_difference(translated, capsys):
    ln, bn = places(translated)
    rows = rows_of(shown(capsys, ln, bn))
    assert main([bn, ln, "--markdown"]) == 0
    assert f"<br>({rows['all'][2][:4]}" in rows_of(capsys.readouterr().out)["bn"][1]
    out = shown(capsys, f"{bn}/seed2", f"{ln}/seed2", "--baseline", "bn")
    assert float(rows_of(out)["2"][2]) == -float(rows["2"][2])
    assert [*rows_of(out)] == ["2"] and "t test" not in out


def test_scores_below_an_untrained_baseline_get_a_note(translated, capsys):
    ln, bn = places(translated)
    for folder, _ in translated.entries():
        changed(folder, floors={"bleu": 99.0})
    (note,) = (line for line in shown(capsys, ln, bn).splitlines() if "untrained baseline" in line)
    assert "test/bleu (all rows)" in note


def test_data_dir_finds_moved_text_and_refuses_different_text(translated, capsys, tmp_path, text):
    argv = [*places(translated), "--bootstrap", "--data-dir"]
    assert main([*argv, str(text)]) == 0
    other = write_corpus(tmp_path / "other", seed=7)
    with pytest.raises(ValueError, match="in the data folder is not the text that"):
        main([*argv, str(other)])


def diverged(folder):
    changed(folder, scores={}, outcome=Outcome("diverged", 3))


def first_of(translated, norm):
    return next(folder for folder, record in translated.entries() if record.choice("norm") == norm)


def other_signature(folder):
    value = read_record(folder).scores["test/bleu"]
    changed(folder, scores={"test/bleu": replace(value, signature="nrefs:1|case:lc|tok:none")})


def other_value(folder):
    value = read_record(folder).scores["test/bleu"]
    changed(folder, scores={"test/bleu": replace(value, value=value.value + 0.5)})


def without_bleu(folder):
    changed(folder, scores={})


def no_translations(folder):
    (folder / "hypotheses.txt").unlink()


def not_utf8(folder):
    (folder / "hypotheses.txt").write_bytes(b"a\xff\n" * 30)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (diverged, r"cannot be compared: seeds diverged: 1 of 3 of the row"),
        (other_signature, r"test/bleu was computed in several ways"),
        (without_bleu, r"bn-pre-\S+ has no test/bleu, but the bootstrap compares translations"),
        (other_value, r"hypotheses.txt scores [\d.]+, but the record says"),
        (no_translations, r"hypotheses.txt: .*o such file.*normlab eval"),
        (not_utf8, r"hypotheses.txt is not UTF-8 at byte 1"),
    ],
)
def test_damaged_or_incomparable_runs_are_refused_with_the_reason(translated, damage, message):
    folder = first_of(translated, "bn")
    damage(folder)
    with pytest.raises(ValueError, match=message):
        main([*places(translated), "--bootstrap"])


def test_the_bootstrap_refuses_runs_without_pairs_and_columns(translated):
    ln, bn = places(translated)
    with pytest.raises(ValueError, match=r"no seed finished on both sides \(4; 1\)"):
        main([f"{ln}/seed1", f"{bn}/seed4", "--bootstrap"])
    with pytest.raises(ValueError, match=r"compares two experiments, but got 1: ln"):
        main([f"{ln}/seed1", f"{ln}/seed2", "--bootstrap"])
    with pytest.raises(ValueError, match="omit --columns"):
        main([ln, bn, "--bootstrap", "--columns", "test/bleu"])


def test_chinese_translations_are_compared_by_characters(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = ["我喜欢学习中文。", "你在哪里住。", "今天天气很好。", "他们明天来。"]
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.de").write_text("eins\nzwei\ndrei\nvier\n", "utf-8")
        (tmp_path / f"{split}.zho_Hans").write_text("".join(f"{x}\n" for x in lines), "utf-8")
    code = "task.corpus.target_language=zho_Hans"
    store = RunStore("runs")
    for norm in ("ln", "bn"):
        config = to_dict(compose(tiny(tmp_path, store.root, f"norm={norm}", code)))
        corpus = FolderCorpus(
            data_dir=str(tmp_path), source_language="de", target_language="zho_Hans", form="raw"
        )
        sides = corpus.splits["test"].checksums()
        checksums = {"test": dict(zip(corpus.languages, sides, strict=True))}
        output = [line[:-2] for line in lines] if norm == "bn" else lines
        write(store, config, output, lines, checksums, tokenize="zh")
    out = shown(capsys, *places(store))
    assert "tok:zh" in out and float(rows_of(out)["1"][0]) > float(rows_of(out)["1"][1]) > 20
