"""False alarms from surveys of libraries, each rebuilt as a correct model with a faulty twin."""

import importlib
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.any_model.pairs import WIDTH, Case, masked, text_batches, texts
from tests.any_model.rebuilt_bugs import Causal, RebuiltBug, built, inspected
from tests.any_model.toys import Embedded, embedded, mean
from tests.test_architecture import ROOT


def each_against_each(faulty: bool) -> Case:
    """CLIP: scores of each image with each text in the batch, so two axes are rows."""

    class Scores(nn.Module):
        def forward(self, images: Tensor, texts: Tensor) -> Tensor:
            images, texts = (x / x.norm(dim=-1, keepdim=True) for x in (images, texts))
            return images @ (texts - texts.mean(0) if faulty else texts).T

    return Case(Scores(), [(torch.randn(4, WIDTH), torch.randn(4, WIDTH))])


def after_settled_statistics(faulty: bool) -> Case:
    """timm: a layer after a batch norm whose statistics nearly equal the batch's."""

    class Late(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x**3 * (2 if faulty and self.training else 1)

    layers = [nn.Conv2d(3, WIDTH, 3), nn.BatchNorm2d(WIDTH), Late(), nn.Flatten()]
    model, x = nn.Sequential(*layers), torch.randn(4, 3, 12, 12)
    for each in model.modules():
        if isinstance(each, _BatchNorm):
            each.momentum = None
    model.train()(x)
    return Case(model.eval(), [x], {"causal": False})


class Nodes(nn.Module):
    """The nodes of all graphs in one list, normalized per graph or over all graphs."""

    def __init__(self, faulty: bool):
        super().__init__()
        self.norm = InstanceNorm(faulty)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.flatten(0, 1), len(x)).unflatten(0, (len(x), -1))


class InstanceNorm(nn.Module):
    """PyG's norm of each feature over the nodes of a graph."""

    def __init__(self, faulty: bool):
        super().__init__()
        self.faulty = faulty

    def forward(self, x: Tensor, graphs: int) -> Tensor:
        y = x[None] if self.faulty else x.unflatten(0, (graphs, -1))
        y = (y - y.mean(1, keepdim=True)) / (y.var(1, keepdim=True) + 1e-5).sqrt()
        return y.flatten(0, 1)


def nodes_of_a_graph(faulty: bool) -> Case:
    return Case(Nodes(faulty), [torch.randn(4, 10, WIDTH)], {"causal": False})


class TimeFirst(nn.Module):
    """A norm on `[T, B, D]` and one on `[B, T, D]`; the longest row has no padding."""

    def __init__(self, faulty: bool):
        super().__init__()
        self.norm, self.last = nn.LayerNorm(16), nn.LayerNorm(12 if faulty else 16)
        self.faulty = faulty

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        if int(lengths.max()) != x.shape[1]:
            raise ValueError("the longest row fills the input")
        x = x.mT if self.faulty else x.transpose(0, 1)
        y = self.norm(x)
        return self.last(y.mT if self.faulty else y.transpose(0, 1))


class Longest(nn.Module):
    """A convolution over frames; the longest row has no padding."""

    def __init__(self, faulty: bool):
        super().__init__()
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.faulty = faulty

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        if int(lengths.max()) != x.shape[1]:
            raise ValueError("the longest row fills the input")
        real = (torch.arange(x.shape[1]) < lengths[:, None])[..., None]
        return self.conv((x if self.faulty else x * real).mT).mT


def padded_in_the_batch_only(faulty: bool) -> Case:
    """torchaudio's Conformer: its mask is only as long as the longest row.

    The shortest of the four rows is a quarter as long.
    """
    batch = {"x": torch.randn(4, 24, WIDTH), "lengths": torch.tensor([24, 17, 12, 6])}
    return Case(Longest(faulty), [batch], {"causal": False})


def cut_to_the_longest(faulty: bool) -> Case:
    """sentence-transformers' LSTM: the output is as long as the longest row, 4 times the shortest.

    The faulty network is not batch first.
    """

    def encode(m, x: Tensor, mask: Tensor) -> Tensor:
        if faulty:
            return m.lstm(x.transpose(0, 1).reshape(x.shape))[0]
        packed = pack_padded_sequence(x, mask.sum(1), True, enforce_sorted=False)
        return pad_packed_sequence(m.lstm(packed)[0], True)[0]

    mask = masked((24, 17, 12, 6))
    batch = {"input_ids": texts(count=1)[0] * mask, "attention_mask": mask}
    return Case(Embedded(encode, lstm=nn.LSTM(WIDTH, 8, batch_first=True)), [batch])


def as_many_features_as_positions(faulty: bool) -> Case:
    """torchaudio's Conformer: 16 features, at 16 positions."""
    batch = {
        "x": torch.randn(4, 16, 12 if faulty else 16),
        "lengths": torch.tensor([16, 16, 12, 8]),
    }
    return Case(TimeFirst(faulty), [batch], {"causal": False})


class Frozen(nn.BatchNorm1d):
    """A batch norm that never uses the statistics of the batch."""

    def train(self, mode: bool = True) -> "Frozen":
        return super().train(False)


def short_rows(faulty: bool) -> Case:
    """Lasr: a row that is too short for a convolution shows nothing about statistics."""

    class Short(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv1d(WIDTH, WIDTH, 10), Frozen(WIDTH)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return mean(self.norm(self.conv(x.mT)).mT, mask[:, 9:]).nan_to_num()

    model = Short()
    mask = (torch.arange(24) < torch.tensor([24, 24, 20, 8])[:, None]).long()
    x = torch.randn(4, 24, WIDTH)
    if not faulty:
        y = model.conv(x[:2].mT).transpose(0, 1).flatten(1)
        model.norm.running_mean, model.norm.running_var = y.mean(1).detach(), y.var(1).detach()
    return Case(model.eval(), [{"x": x, "mask": mask}], {"mask": "mask"})


def pooled_width_is_length(faulty: bool) -> Case:
    """sentence-transformers: a pooled output with as many features as positions."""
    (batch,) = text_batches(count=1)
    batch = {key: x[:, :WIDTH] for key, x in batch.items()}
    batch["attention_mask"] = torch.ones_like(batch["attention_mask"])
    if faulty:
        flat = Causal(lambda x: x.mean(1, keepdim=True).expand_as(x))
        return Case(flat, [batch["input_ids"]], {"causal": True})
    return Case(Embedded(lambda _, x, mask: mean(x, mask)), [batch], {"causal": True})


def table_of_distances(faulty: bool) -> Case:
    """MPNet: as many features as distances in a table, but fewer than words in the vocabulary."""

    def attend(m, x: Tensor, mask: Tensor) -> Tensor:
        places = torch.arange(x.shape[1])
        bias = m.distances((places[:, None] - places).clamp(-8, 7) + 8)[..., 0]
        scores = (x @ x.mT + bias).masked_fill(mask[:, None] == 0, -1e9)
        y = scores.softmax(-1) @ x
        return m.head(y) if faulty else y

    parts = {"distances": nn.Embedding(WIDTH, 1), "head": nn.Linear(WIDTH, 256)}
    case = embedded(attend, **parts)
    case.model.is_causal = False
    return case


def causal_elsewhere(faulty: bool) -> Case:
    """BridgeTower: its cross-attention declares itself causal, but its text encoder is not."""

    class Attention(nn.Module):
        def __init__(self, is_causal: bool):
            super().__init__()
            self.is_causal = is_causal

        def forward(self, x: Tensor) -> Tensor:
            return x + x.mean(1, keepdim=True)

    class Texts(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.text = nn.Embedding(256, WIDTH), Attention(faulty)
            self.cross = Attention(True)

        def forward(self, input_ids: Tensor) -> Tensor:
            return self.text(self.embed(input_ids))

    return Case(Texts(), texts(count=1))


def mask_of_another_input(faulty: bool) -> Case:
    """diffusers' UNet3D: `attention_mask` does not mask the text, which is not padded."""

    class Denoiser(nn.Module):
        def forward(
            self, encoder_hidden_states: Tensor, x: Tensor, attention_mask: Tensor | None = None
        ) -> Tensor:
            text = encoder_hidden_states.mean(0 if faulty else 1, keepdim=True)
            return x + text.mean(1, keepdim=True)

    batch = {"encoder_hidden_states": torch.randn(4, 9, WIDTH), "x": torch.randn(4, 5, WIDTH)}
    return Case(Denoiser(), [batch])


def stacked_frames(faulty: bool) -> Case:
    """Nemotron: one position per four frames, whose boundaries move if padded by one."""

    def stack(m, x: Tensor, mask: Tensor) -> Tensor:
        whole = x.shape[1] // 4 * 4
        frames = x * mask[..., None] - (x.mean(1, keepdim=True) if faulty else 0)
        return m.head(frames[:, :whole].unflatten(1, (-1, 4)).flatten(2))

    return embedded(stack, head=nn.Linear(4 * WIDTH, 24))  # as many features as positions


ACCUSED = {
    "stacked frames": RebuiltBug(stacked_frames, "padding"),
    "causal only in cross-attention": RebuiltBug(causal_elsewhere, "future", "text: Attention"),
    "mask that is for a different input": RebuiltBug(mask_of_another_input, "batch_mates"),
    "scores of all pairs of rows": RebuiltBug(each_against_each, "batch_mates"),
    "statistics equal to the batch": RebuiltBug(after_settled_statistics, "modes", "Late", "look"),
    "nodes of a graph": RebuiltBug(nodes_of_a_graph, "norms", "batch", "look"),
    "longest row without padding": RebuiltBug(padded_in_the_batch_only, "padding", "conv: Conv1d"),
    "output cut to the longest row": RebuiltBug(cut_to_the_longest, "batch_mates"),
    "as many features as positions": RebuiltBug(
        as_many_features_as_positions, "norms", "over position", "look"
    ),
    "rows too short": RebuiltBug(short_rows, "statistics", "never updated", "look"),
    "pooled width equals length": RebuiltBug(pooled_width_is_length, "future"),
    "as many features as distances": RebuiltBug(
        table_of_distances, "future", "causal=True", "look"
    ),
}


@pytest.mark.parametrize("name", ACCUSED)
def test_a_previous_false_alarm_is_fine_and_a_similar_fault_is_found(name):
    accused = ACCUSED[name]
    found = inspected(built(accused, True), accused.question).findings[accused.question]
    assert found.verdict == accused.verdict and accused.says in found.answer, found
    findings = inspected(built(accused, False), accused.question).findings.values()
    assert [str(each) for each in findings if each.verdict in ("failed", "broken", "look")] == []


def test_a_survey_counts_what_folds(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    survey = importlib.import_module("survey")
    # The time limit of the script would end the process in a later test.
    monkeypatch.setattr(survey.signal, "setitimer", lambda *_: None)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)).eval()
    nn.init.normal_(model[1].weight, 1, 0.3)
    subject = SimpleNamespace(model=model, batches=[torch.randn(3, 4)], arguments={})
    counts = {"norms": 1, "means": 1, "means_folded": 1, "gains": 1, "gains_folded": 1}
    assert survey.folds(subject) == counts
