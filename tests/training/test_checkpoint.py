import io
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from normlab.config.registry import sha256
from normlab.models.recurrent import Noise
from normlab.norms.make import make_norm
from normlab.training.checkpoint import (
    FORMAT,
    Checkpoints,
    average_weights,
    load_checkpoint,
    put_weights,
    start_from,
)

STATE = {
    "model": {"weight": torch.randn(3, 4), "count": torch.tensor(7)},
    "progress": {"step": 5, "best": None, "loss": 0.1 + 0.2},
    "random": [{"cpu": torch.get_rng_state()}],
}


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def test_a_checkpoint_restores_the_saved_state_bitwise(checkpoints: Checkpoints):
    checkpoints.save(checkpoints.last, STATE)
    state = load_checkpoint(checkpoints.last)
    assert state["format"] == FORMAT
    assert state["progress"] == STATE["progress"]
    for name, value in STATE["model"].items():
        assert torch.equal(state["model"][name], value)
        assert state["model"][name].dtype == value.dtype
    assert torch.equal(state["random"][0]["cpu"], STATE["random"][0]["cpu"])


def test_a_start_from_other_weights_leaves_out_the_state_of_their_run(checkpoints: Checkpoints):
    def model():
        return nn.ModuleDict({"noise": Noise(0.5), "norm": make_norm("taper", 4)})

    trained, fresh = model(), model()
    for value in trained.state_dict().values():
        value.fill_(7)
    content = {"model": trained.state_dict(), "vocabulary": "v", "checksums": {}, "codes": []}
    checkpoints.save(checkpoints.last, content)
    node = {"run_dir": checkpoints.folder.parent, "sha256": sha256(checkpoints.last)}
    note, _ = start_from(fresh, node, {"vocabulary": "v", "checksums": {}})
    assert note.startswith("2 of 6 tensors are copied")
    copied = {name for name, value in fresh.state_dict().items() if (value == 7).all()}
    assert copied == {"norm.weight", "norm.late"}


DAMAGE = {
    "empty": lambda whole: b"",
    "half": lambda whole: whole[: len(whole) // 2],
    "text": lambda whole: b"not a checkpoint",
    "plain pickle": lambda whole: pickle.dumps({"format": FORMAT}, protocol=2),
}


@pytest.mark.parametrize("how", [*DAMAGE, "bomb", "code", "twice"])
def test_a_damaged_checkpoint_raises_a_one_line_error_that_says_what_to_do(
    checkpoints: Checkpoints, how
):
    """No code in it is executed, and nothing larger than its stated size is unpacked."""
    checkpoints.save(path := checkpoints.last, STATE)
    whole = path.read_bytes()
    path.write_bytes(DAMAGE[how](whole) if how in DAMAGE else repacked(whole, how))
    said = rf"^[^\n]*{path}[^\n]*remove the run's folder[^\n]*$"
    with pytest.raises(ValueError, match=said):
        load_checkpoint(path)
    assert not Path("stolen").exists()
    with pytest.raises(ValueError, match=r"best-loss\.pt does not exist"):
        load_checkpoint(checkpoints.best("loss"))


def repacked(whole: bytes, how: str) -> bytes:
    """Return a checkpoint's archive, repacked as an attacker would do it."""
    source, made = zipfile.ZipFile(io.BytesIO(whole)), io.BytesIO()
    with zipfile.ZipFile(made, "w") as target:
        for entry in source.infolist():
            data = source.read(entry)
            if how == "code" and entry.filename.endswith("data.pkl"):
                data = b"cos\nsystem\n(S'touch stolen'\ntR."
            packed = how == "bomb" and entry.filename.endswith("/data/0")
            kind = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
            target.writestr(entry.filename, bytes(10**8) if packed else data, kind)
            if how == "twice":
                target.writestr(entry.filename, b"other")
    return made.getvalue()


def test_the_average_is_the_mean_of_the_last_k_checkpoints(checkpoints: Checkpoints):
    for step, value in ((10, 100.0), (20, 1.0), (30, 2.0), (40, 6.0)):
        checkpoints.keep_for_average(step, {"w": torch.full((2,), value)}, 3)
    checkpoints.keep_for_average(50, {"w": torch.ones(1)}, 0)  # no averaging, so nothing is kept
    assert len(list(checkpoints.folder.glob("step-*.pt"))) == 3
    assert checkpoints.average(40, 3)["w"].tolist() == [3.0, 3.0]  # (1 + 2 + 6) / 3
    assert checkpoints.average(40, 2)["w"].tolist() == [4.0, 4.0]  # (2 + 6) / 2


def test_averaging_is_exact_where_float32_sums_are_not():
    # In float32 2**24 + 1 is 2**24, so a sum in float32 would lose the ones.
    states = [{"w": torch.tensor([float(v)])} for v in (2**24, 1, 1, 2**24 - 2)]
    assert average_weights(states)["w"].item() == 2**23


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"weight": torch.ones(3, 2)}, r"weight is torch.float32 \(3, 2\), and .* \(2, 3\)"),
        ({"weight": torch.ones(2, 3, dtype=torch.int64)}, "weight is torch.int64"),
        ({"bias": torch.tensor([1.0, float("nan")])}, "bias has values that are not finite"),
        ({"bias": torch.zeros(1).expand(2)}, "bias has fewer values than its shape"),
        ({"other": torch.ones(1)}, "another model: it has other"),
    ],
)
def test_weights_of_another_shape_or_with_nans_are_refused_and_none_is_loaded(changed, said):
    model = torch.nn.Linear(3, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=said):
        put_weights(model, {**before, **changed}, Path("last.pt"))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="another model: it lacks bias"):
        put_weights(model, {"weight": torch.zeros(2, 3)}, Path("last.pt"))
