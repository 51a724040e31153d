"""Further public reports of leaks, rebuilt as small models, each with a sound twin."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.any_model.pairs import WIDTH, Case, masked, text_batches, texts
from tests.any_model.test_reported import (
    Causal,
    Embedded,
    Report,
    built,
    embedded,
    inspected,
    mean,
)


def subsampled_mask(faulty: bool) -> Case:
    """espnet/espnet#6633: a strided convolution shortens the mask from the end of the batch."""

    def encode(m, x: Tensor, mask: Tensor) -> Tensor:
        x = m.conv((x * mask[..., None]).mT).mT
        if faulty:  # every other value, from the end: the last is kept for the longest row only
            shorter = mask.flip(1)[:, ::2].flip(1)[:, -x.shape[1] :]
        else:
            lengths = (mask.sum(1) - 1) // 2 + 1
            shorter = (torch.arange(x.shape[1]) < lengths[:, None]).to(mask.dtype)
        return mean(x, shorter)

    return embedded(encode, conv=nn.Conv1d(WIDTH, WIDTH, 1, stride=2))


class Passing(nn.Module):
    """Layers in order, which get the mask only if their argument has the expected name."""

    def __init__(self, expects: str):
        super().__init__()
        self.embed, self.expects = nn.Embedding(256, WIDTH), expects
        self.inner = Attention()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        names = self.inner.forward.__code__.co_varnames
        given = {self.expects: attention_mask} if self.expects in names else {}
        return self.inner(self.embed(input_ids), **given)


class Attention(nn.Module):
    """Attends to real positions, or to all if there is no mask."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        allowed = None if real is None else real[:, None, :].bool()
        return F.scaled_dot_product_attention(x, x, x, attn_mask=allowed)


def mask_under_another_name(faulty: bool) -> Case:
    """speechbrain/speechbrain#2986: a container hands lengths only to an argument of one name."""
    return Case(Passing("lengths" if faulty else "real"), text_batches())


def bias_before_a_convolution(faulty: bool) -> Case:
    """pytorch/audio#4205: padding is zero first, but a bias before the convolution refills it."""

    def convolve(m, x: Tensor, mask: Tensor) -> Tensor:
        real = mask[..., None].to(x.dtype)
        x = F.glu(m.pointwise(x * real), -1)
        return m.depthwise((x if faulty else x * real).mT).mT

    pointwise = nn.Linear(WIDTH, 2 * WIDTH)
    depthwise = nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)
    return embedded(convolve, pointwise=pointwise, depthwise=depthwise)


def floor_of_the_loudest(faulty: bool) -> Case:
    """openai/whisper#2862: a floor below the loudest value, of all recordings or of each."""

    class Features(nn.Module):
        def forward(self, sound: Tensor) -> Tensor:
            power = sound.unfold(1, 8, 8).square().mean(-1).log10()
            loudest = power.max() if faulty else power.amax(1, keepdim=True)
            return torch.maximum(power, loudest - 1)

    sizes = torch.tensor([0.1, 3.0, 1.0, 0.3])
    return Case(Features(), [torch.randn(4, 64) * sizes[:, None]])


def capacity_taken_by_padding(faulty: bool) -> Case:
    """NVIDIA/Megatron-LM#5542: padding is routed to experts, and takes places from tokens."""

    def route(m, x: Tensor, mask: Tensor) -> Tensor:
        score = m.router(x).sigmoid()[..., 0]
        score = score if faulty else score * mask
        place = score.argsort(1, descending=True).argsort(1)
        taken = place < (6 if faulty else x.shape[1])  # without a limit nothing is dropped
        return x + (taken * score)[..., None] * m.expert(x)

    return embedded(route, router=nn.Linear(WIDTH, 1), expert=nn.Linear(WIDTH, WIDTH))


def causal_only_with_a_mask(faulty: bool) -> Case:
    """facebookresearch/xformers#103, keras-team/keras#23038: no padding mask, no causal mask."""

    def attend(x: Tensor, padding: Tensor | None = None) -> Tensor:
        later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        hidden = later if padding is not None or not faulty else torch.zeros_like(later)
        scores = (x @ x.mT / WIDTH).masked_fill(hidden, -math.inf)
        return scores.softmax(-1) @ x

    return Case(Causal(attend), texts(count=1), {"causal": True})


def blocks_the_wrong_way(faulty: bool) -> Case:
    """tilde-research/nsa-release#3: a mask of summaries that is true where it should be false."""

    def attend(x: Tensor) -> Tensor:
        size, length = 8, x.shape[1]
        blocks = F.pad(x, (0, 0, 0, -length % size)).unflatten(1, (-1, size)).mean(2)
        ends = (torch.arange(blocks.shape[1]) + 1) * size
        over = ends <= torch.arange(length)[:, None] + 1
        allowed = ~over if faulty else over
        scores = (x @ blocks.mT / WIDTH).masked_fill(~allowed, -1e9)
        return (scores.softmax(-1) * allowed) @ blocks

    return Case(Causal(attend), texts(rows=3, length=48, count=1), {"causal": True})


def window_without_an_end(faulty: bool) -> Case:
    """huggingface/transformers#31673: a sliding window hides the far past, not the future."""

    def attend(x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1])
        back = places[:, None] - places
        allowed = (back < 8) if faulty else (back < 8) & (back >= 0)
        return F.scaled_dot_product_attention(x, x, x, attn_mask=allowed)

    return Case(Causal(attend), texts(count=1), {"causal": True})


def state_from_padding(faulty: bool) -> Case:
    """state-spaces/mamba#66, huggingface/transformers#32677: the state of padding on the left."""

    def scan(m, x: Tensor, mask: Tensor) -> Tensor:
        real = mask[..., None].to(x.dtype)
        x = x if faulty else x * real
        x = m.conv(F.pad(x.mT, (3, 0))).mT
        x = x if faulty else x * real
        state, outputs = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state = 0.9 * state + x[:, t]
            outputs.append(state)
        return torch.stack(outputs, 1)

    return Case(Embedded(scan, conv=nn.Conv1d(WIDTH, WIDTH, 4)), text_batches(side="left"))


def first_slot(faulty: bool) -> Case:
    """huggingface/sentence-transformers#3208: the first slot is taken, which is padding."""

    def first(_, x: Tensor, mask: Tensor) -> Tensor:
        place = torch.zeros(len(x)).long() if faulty else mask.argmax(1)
        return x[torch.arange(len(x)), place]

    return Case(Embedded(first), text_batches(side="left"))


def lengths_after_padding(faulty: bool) -> Case:
    """huggingface/diffusers#12893: texts are padded, and then measured for their mask."""

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.attend = nn.Embedding(256, WIDTH), Attention()

        def forward(self, prompt: Tensor, prompt_mask: Tensor, image: Tensor) -> Tensor:
            texts = self.embed(prompt)
            sizes = torch.tensor([len(each) for each in texts]) if faulty else prompt_mask.sum(1)
            real = torch.arange(texts.shape[1]) < sizes[:, None]
            whole = torch.cat([real, torch.ones(len(image), image.shape[1]).bool()], 1)
            return self.attend(torch.cat([texts, image], 1), whole)[:, -image.shape[1] :]

    mask, ids = masked(), texts(count=1)[0]
    image = torch.randn(len(ids), 5, WIDTH)
    batch = {"prompt": ids * mask, "prompt_mask": mask, "image": image}
    return Case(Denoiser(), [batch], {"mask": "prompt_mask"})


def long_filter(faulty: bool) -> Case:
    """HazyResearch/m2#43: a filter as long as the row takes padding in, from both sides."""

    def mix(_, x: Tensor, mask: Tensor) -> Tensor:
        x = x if faulty else x * mask[..., None]
        steps = torch.arange(x.shape[1])
        kernel = 0.8 ** (steps[:, None] - steps).abs().to(x.dtype)
        return kernel @ x

    return embedded(mix)


def lengths_in_sorted_order(faulty: bool) -> Case:
    """facebookresearch/InferSent#51: rows go back to their order, their lengths do not."""

    def pool(_, x: Tensor, mask: Tensor) -> Tensor:
        lengths, order = mask.sum(1).sort(descending=True, stable=True)
        total = (x * mask[..., None]).sum(1)
        return total / (lengths if faulty else lengths[order.argsort()])[:, None]

    case = embedded(pool)
    return case._replace(batches=[{k: x[[2, 0, 3, 1]] for k, x in b.items()} for b in case.batches])


def dropout_made_in_forward(faulty: bool) -> Case:
    """yangze0930/NTS-Net#14: a dropout made in `forward` does not know of evaluation."""
    kept = nn.Dropout(0.5)
    return embedded(lambda m, x, _: (nn.Dropout(0.5) if faulty else m.kept)(x), kept=kept)


def greatest_of_padding(faulty: bool) -> Case:
    """castorini/castor#176: the greatest value over time may be at padding."""

    def pool(_, x: Tensor, mask: Tensor) -> Tensor:
        return (x if faulty else x.masked_fill(mask[..., None] == 0, -math.inf)).amax(1)

    return embedded(pool)


REPORTS: dict[Callable[[bool], Case], Report] = {
    build: Report(build, question)
    for question, builds in {
        "padding": (
            subsampled_mask,
            mask_under_another_name,
            bias_before_a_convolution,
            capacity_taken_by_padding,
            state_from_padding,
            first_slot,
            lengths_after_padding,
            long_filter,
            greatest_of_padding,
        ),
        "batch_mates": (floor_of_the_loudest, lengths_in_sorted_order),
        "future": (causal_only_with_a_mask, blocks_the_wrong_way, window_without_an_end),
        "forward": (dropout_made_in_forward,),
    }.items()
    for build in builds
}


@pytest.mark.parametrize("build", REPORTS, ids=lambda build: build.__name__)
def test_a_further_report_is_found_and_its_sound_twin_is_spared(build):
    report = REPORTS[build]
    found = inspected(built(report, True)).findings[report.question]
    assert found.verdict == report.verdict, found
    findings = inspected(built(report, False)).findings.values()
    assert [str(each) for each in findings if each.verdict in ("failed", "broken", "look")] == []
