"""Images: sources, augmentation, norms compared with torch's, published networks, a run."""

import io
import tarfile
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from normlab.config.compose import compose
from normlab.config.plain import to_dict
from normlab.data import cifar10
from normlab.data.images import Augmentation, Digits
from normlab.models.folding import fold
from normlab.models.resnet import normalized
from normlab.norms.make import make_norm
from normlab.norms.running import running_norms
from normlab.training import train
from normlab.training.build import build_model, build_task

SMALL = ("task=digits", "model.width=4", "sink=[jsonl]", "observe.threads=1", "precision=fp64")
VIT = ("task=digits", "model=vit", "model.dim=16", "model.ffn_dim=32", "model.num_heads=2")


@cache
def digits():
    return Digits(valid_size=200).splits()


def model_of(*overrides):
    config = to_dict(compose([*overrides]))
    task = build_task(config)
    return build_model(config, task).to(torch.float64), task


def archive(path, members):
    with tarfile.open(path, "w:xz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def jpeg(side=32):
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (side, side), (200, 10, 30)).save(out, "JPEG")
    return out.getvalue()


def decoded(folder, monkeypatch, members, *, size=None):
    monkeypatch.setenv("NORMLAB_CACHE", str(folder / "cache"))
    monkeypatch.setattr(cifar10, "SIZES", {"train": size or len(members), "test": 1})
    archive(folder / "train_jpeg.tar.xz", members)
    archive(folder / "test_jpeg.tar.xz", [("cifar10/test/cat/0.jpg", jpeg())])
    source = cifar10.Cifar10(data_dir=str(folder), valid_size=1, train_size=None)
    return source, source.published()


def test_data_dir_may_be_the_folder_that_contains_cifar10(tmp_path, monkeypatch):
    (tmp_path / "cifar10").mkdir()
    source, _ = decoded(tmp_path / "cifar10", monkeypatch, [("cifar10/train/dog/0.jpg", jpeg())])
    whole = cifar10.Cifar10(data_dir=str(tmp_path), valid_size=1, train_size=None)
    assert whole.files() == source.files()


def test_splits_divide_all_images_and_are_balanced_over_classes():
    found = digits()
    assert sum(map(len, found.values())) == 1797
    for split in ("valid", "test"):
        counts = np.bincount(found[split].labels, minlength=10)
        assert counts.min() >= 0.9 * counts.max()
    assert np.array_equal(found["train"].pixels, Digits(valid_size=200).splits()["train"].pixels)


def test_jpeg_archives_are_read_in_order_and_labelled_as_jpeg(tmp_path, monkeypatch):
    members = [(f"cifar10/train/{name}/0.jpg", jpeg()) for name in ("dog", "ship", "airplane")]
    source, found = decoded(tmp_path, monkeypatch, members)
    assert source.label == "CIFAR-10 (JPEG)"
    assert found["train"].labels.tolist() == [5, 8, 0]
    assert abs(found["train"].pixels[0, 5, 5].astype(int) - [200, 10, 30]).max() < 8


@pytest.mark.parametrize(
    ("members", "size", "message"),
    [
        ([("cifar10/train/dog/0.jpg", jpeg()[:300])], None, r"dog/0\.jpg: not a 32x32 image"),
        (
            [("cifar10/train/dragon/0.jpg", jpeg())],
            None,
            "in a folder named after a CIFAR-10",
        ),
        ([("cifar10/train/dog/0.jpg", jpeg())], 2, "has 1 train images instead of 2"),
    ],
)
def test_a_damaged_archive_raises_an_error_and_leaves_no_partial_files(
    tmp_path, monkeypatch, members, size, message
):
    with pytest.raises(ValueError, match=message):
        decoded(tmp_path, monkeypatch, members, size=size)
    assert not list((tmp_path / "cache").glob("cifar10-*/*.npy")), "a half-decoded file is left"


def test_the_error_for_an_empty_folder_says_where_to_download_the_images(tmp_path):
    with pytest.raises(ValueError, match=r"cifar-10-binary\.tar\.gz \(https://"):
        cifar10.Cifar10(data_dir=str(tmp_path), valid_size=1, train_size=None).published()


def test_the_binary_archive_is_read_and_split_evenly_over_classes(tmp_path, monkeypatch):
    monkeypatch.setenv("NORMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cifar10, "SIZES", {"train": 20, "test": 1})
    members = []
    for name, labels in {"data_batch_1.bin": [*range(10)] * 2, "test_batch.bin": [3]}.items():
        rows = b"".join(bytes([label]) + bytes([7]) * 3072 for label in labels)
        members.append((f"cifar-10-batches-bin/{name}", rows))
    archive(tmp_path / cifar10.BINARY, members)
    found = cifar10.Cifar10(data_dir=str(tmp_path), valid_size=10, train_size=None).splits()
    assert (found["test"].labels.tolist(), found["test"].pixels.max()) == ([3], 7)
    assert sorted(found["train"].labels) == sorted(found["valid"].labels) == [*range(10)]


@pytest.mark.parametrize(
    ("overrides", "count"),
    [
        (("task=digits", "model.width=4", "model.shortcut=projection"), 9),
        ((*VIT, "norm@ffn_inner_norm=bn", "model.num_layers=2"), 7),
    ],
)
def test_folding_batch_norms_removes_them_without_changing_the_logits(overrides, count):
    model, task = model_of(*overrides, "norm=bn")
    for norm in running_norms(model.eval()):
        mean, var = torch.randn(2, 1, norm.dim, dtype=torch.double)
        norm.enter(slice(1), mean, var.square() + 0.5, torch.ones(1, dtype=torch.double))
        torch.nn.init.uniform_(norm.weight)
    batch = task.batch("valid", range(8))
    with torch.no_grad():
        expected = task.logits(model, batch)
        folded = fold(model)
        assert len(folded) == count and not running_norms(model)
        torch.testing.assert_close(task.logits(model, batch), expected)


def test_augmentation_shifts_or_mirrors_and_depends_only_on_seed_epoch_and_image():
    vary = Augmentation(shift=1, flip=True)
    pixels = np.arange(1, 26, dtype=np.uint8).reshape(1, 5, 5, 1).repeat(400, 0)
    numbers = np.arange(400)
    whole = vary(pixels, indices=numbers, seed=1, epoch=3)
    part = vary(pixels[4:7], indices=numbers[4:7], seed=1, epoch=3)
    assert np.array_equal(whole[4:7], part)
    for seed, epoch in ((1, 4), (2, 3)):
        assert not np.array_equal(whole, vary(pixels, indices=numbers, seed=seed, epoch=epoch))
    shifted = np.lib.stride_tricks.sliding_window_view(np.pad(pixels[0, :, :, 0], 1), (5, 5))
    cuts = shifted.reshape(9, 5, 5)
    allowed = {image.tobytes() for image in (*cuts, *cuts[:, :, ::-1])}
    assert {image.tobytes() for image in whole[..., 0]} == allowed


@pytest.mark.parametrize(
    ("option", "theirs"),
    [("bn", nn.BatchNorm2d(16)), ("gn_sample", nn.GroupNorm(8, 16)), ("seqn", nn.GroupNorm(1, 16))],
)
def test_norms_on_images_match_torchs_modules(option, theirs):
    torch.manual_seed(1)
    ours, theirs = make_norm(option, 16).double(), theirs.double()
    x = torch.randn(3, 16, 4, 5, dtype=torch.float64) * 3 + 1
    x = x.contiguous(memory_format=torch.channels_last)
    for _ in range(2):  # twice, to compare the running statistics too
        mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, z = normalized(ours, mine), theirs(other)
        torch.testing.assert_close(y, z)
        pull = torch.randn_like(y)
        y.backward(pull)
        z.backward(pull)
        torch.testing.assert_close(mine.grad, other.grad)
    torch.testing.assert_close(normalized(ours.eval(), x), theirs.eval()(x))


def test_resnet20_has_the_published_layers():
    model, _ = model_of("task=digits", "model=resnet20", "norm=bn")
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    widths = [16] * 7 + [32] * 6 + [64] * 6
    assert [m.out_channels for m in convolutions] == widths
    assert [m.stride[0] for m in convolutions].count(2) == 2
    rgb = sum(p.numel() for p in model.parameters()) + 2 * 16 * 9  # for two more input channels
    assert rgb == 269_722  # 0.27 M (He et al. 2016, table 6)


def test_a_block_without_a_shortcut_computes_only_its_branch():
    plain, _ = model_of(*SMALL, "norm=bn", "model.shortcut=none")
    with_shortcuts, _ = model_of(*SMALL, "norm=bn")
    assert plain.state_dict().keys() == with_shortcuts.state_dict().keys()
    x = torch.rand(2, 4, 8, 8, dtype=torch.float64)
    for model, shortcut in ((plain, 0.0), (with_shortcuts, x)):
        block = model.get_submodule("blocks.0").eval()
        branch = block.get_submodule("second")(block.get_submodule("first")(x).relu())
        torch.testing.assert_close(block(x), (branch + shortcut).relu())


def test_shortcut_projections_and_zero_last_gains_can_be_chosen():
    projected, _ = model_of(*SMALL, "norm=bn", "model.shortcut=projection")
    assert sum(isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1) for m in projected.modules())
    quiet, _ = model_of(*SMALL, "norm=bn", "model.zero_last_gain=true")
    block = quiet.get_submodule("blocks.0").eval()
    x = torch.rand(2, 4, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(block(x), x)
    ones = model_of(*SMALL, "norm=rms", "norm.one_plus=true", "model.zero_last_gain=true")[0]
    torch.testing.assert_close(ones.get_submodule("blocks.0")(x), x)
    with pytest.raises(ValueError, match="zero_last_gain=true: NoNorm learns no gain"):
        model_of(*SMALL, "norm=none", "model.zero_last_gain=true")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("task=digits", "placement=post"), "placement: a residual network"),
        (("task=digits", "norm@ffn_inner_norm=bn"), "this model has no norm there"),
        (("task=digits", "model=tiny"), "model=resnet8, resnet20, vit"),
        (("task=toy", "task.corpus.size=50", "model=resnet8"), "model=tiny, mini, small"),
        (("task=digits", "model=vit", "model.patch=3"), "patch=3 does not divide .* 8x8"),
        (("task=digits", "max_tokens=100"), "measured in pictures, not tokens; set batch_size"),
        (("task=digits", "task.source.valid_size=1790"), "valid_size=1790: there are"),
    ],
)
def test_invalid_image_settings_raise_an_error(overrides, message):
    with pytest.raises(ValueError, match=message):
        model_of(*overrides)


@pytest.mark.parametrize("pool", ["mean", "class"])
def test_a_vision_transformer_reads_patches_row_by_row(pool):
    model, _ = model_of(*VIT, f"model.pool={pool}", "model.dropout=0", "precision=fp64")
    embedding = model.get_submodule("encoder.embedding")
    pixels = torch.rand(2, 8, 8, 1, dtype=torch.float64)
    seen: list[torch.Tensor] = []
    embedding.patches.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    assert model.eval()(pixels).shape == (2, 10)
    torch.testing.assert_close(seen[0][0, 1], pixels[0, :4, 4:].flatten())
    assert len(embedding.positions.weight) == (5 if pool == "class" else 4)


def test_an_image_run_records_its_scores_and_baselines(tmp_path):
    steps = ("budget.steps=6", "validate.every=3", "schedule.warmup=2", "batch_size=50")
    tests = ("task.test_batch_sizes=[]", "task.test_eval_stats=[batch]", "norm=bn", "sink=[]")
    record = train(compose([*SMALL, *steps, *tests, f"runs_dir={tmp_path}"]))
    assert record.outcome.status == "finished"
    accuracy = record.scores["test/accuracy"]
    assert (accuracy.n, accuracy.higher_is_better) == (299, True)
    assert record.floors["accuracy"] == pytest.approx(30 / 299)
    assert record.floors["loss"] == pytest.approx(np.log(10), abs=1e-3)
    assert 0 <= record.scores["test/calibration_error"].value <= 1
    assert record.data["label"] == "digits 8x8" and record.budget.tokens == 300
    assert "test/eval_stats_batch/accuracy" in record.scores
