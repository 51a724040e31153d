"""`normlab inspect --data`, and the task configs that it reads."""

import json

import pytest
import yaml
from omegaconf import OmegaConf

from normlab import cli
from normlab.config.folders import CONFIG_DIR


def write_corpus(folder, test=b"ein kleines Haus .\n"):
    for split, source in {"train": b"ein Haus .\nzwei .\n", "valid": b"zwei .\n"}.items():
        (folder / f"{split}.de").write_bytes(source)
        (folder / f"{split}.en").write_bytes(source.replace(b"Haus", b"house"))
    (folder / "test.de").write_bytes(test)
    (folder / "test.en").write_bytes(b"a small house [x] .\n")


@pytest.mark.parametrize(("options", "read"), [([], yaml.safe_load), (["--json"], json.loads)])
def test_inspect_data_prints_the_description_as_yaml_or_json(tmp_path, capsys, options, read):
    write_corpus(tmp_path)
    words = ["task=translation", f"data_dir={tmp_path}", "batch_size=2"]
    assert cli.main(["inspect", "--data", *words, *options]) == 0
    description = read(capsys.readouterr().out)
    assert description["sizes"] == {"train": 2, "valid": 1, "test": 1}
    assert len(description["checksums"]["test"]["de"]) == 64
    # The two training pairs differ in length by one letter: one batch, padded on both sides.
    lengths = description["tokens"]["train"]
    real = lengths["de"] + lengths["en"] + 4
    longest = sum(description["lengths"]["train"][lang]["max"] + 1 for lang in ("de", "en"))
    assert description["padding_share"] == pytest.approx(1 - real / (2 * longest))


def test_bad_text_gives_a_one_line_error_and_exit_status_1(tmp_path, capsys):
    write_corpus(tmp_path, test=b"\xff\n")
    assert cli.main(["inspect", "--data", "task=translation", f"data_dir={tmp_path}"]) == 1
    captured = capsys.readouterr()
    assert "test.de, line 1 is not UTF-8" in captured.err and captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1


@pytest.mark.parametrize("path", sorted((CONFIG_DIR / "task").glob("*.yaml")), ids=lambda p: p.stem)
def test_a_task_config_starts_with_its_command_and_a_description(path):
    command, description = path.read_text("utf-8").splitlines()[:2]
    assert command.startswith(f"# normlab train task={path.stem}")
    assert description.startswith("# ")
    node = OmegaConf.load(path)
    assert "_target_" in node
