"""CIFAR-10 from its archives, and errors for damaged ones."""

import io
import tarfile

import pytest

from normlab.data import cifar10


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
