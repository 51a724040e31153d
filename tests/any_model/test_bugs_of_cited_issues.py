"""Bugs of cited issues, rebuilt as small models, each with a correct twin."""

import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.any_model.pairs import WIDTH, Case, masked, text_batches, texts
from tests.any_model.rebuilt_bugs import Causal, RebuiltBug, built, inspected
from tests.any_model.toys import Embedded, embedded, mean


def subsampled_mask(faulty: bool) -> Case:
    """espnet/espnet#6633: a strided convolution shortens the mask from the end of the batch."""

    def encode(m, x: Tensor, mask: Tensor) -> Tensor:
        x = m.conv((x * mask[..., None]).mT).mT
        if faulty:  # counts from the end, so only the longest row keeps its last value
            shorter = mask.flip(1)[:, ::2].flip(1)[:, -x.shape[1] :]
        else:
            lengths = (mask.sum(1) - 1) // 2 + 1
            shorter = (torch.arange(x.shape[1]) < lengths[:, None]).to(mask.dtype)
        return mean(x, shorter)

    return embedded(encode, conv=nn.Conv1d(WIDTH, WIDTH, 1, stride=2))


class Passing(nn.Module):
    """A layer that gets the mask only if its argument has the expected name."""

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
    """speechbrain/speechbrain#2986: a container passes lengths only to an argument of one name."""
    return Case(Passing("lengths" if faulty else "real"), text_batches())


def bias_before_a_convolution(faulty: bool) -> Case:
    """pytorch/audio#4205: padding starts as zero, but a bias fills it before the convolution."""

    def convolve(m, x: Tensor, mask: Tensor) -> Tensor:
        real = mask[..., None].to(x.dtype)
        x = F.glu(m.pointwise(x * real), -1)
        return m.depthwise((x if faulty else x * real).mT).mT

    pointwise = nn.Linear(WIDTH, 2 * WIDTH)
    depthwise = nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)
    return embedded(convolve, pointwise=pointwise, depthwise=depthwise)


def floor_of_the_loudest(faulty: bool) -> Case:
    """openai/whisper#2862: values are clipped relative to the loudest of the whole batch."""

    class Features(nn.Module):
        def forward(self, sound: Tensor) -> Tensor:
            power = sound.unfold(1, 8, 8).square().mean(-1).log10()
            loudest = power.max() if faulty else power.amax(1, keepdim=True)
            return torch.maximum(power, loudest - 1)

    sizes = torch.tensor([0.1, 3.0, 1.0, 0.3])
    return Case(Features(), [torch.randn(4, 64) * sizes[:, None]])


def capacity_taken_by_padding(faulty: bool) -> Case:
    """NVIDIA/Megatron-LM#5542: padding is routed to experts and takes capacity from tokens."""

    def route(m, x: Tensor, mask: Tensor) -> Tensor:
        score = m.router(x).sigmoid()[..., 0]
        score = score if faulty else score * mask
        place = score.argsort(1, descending=True).argsort(1)
        taken = place < (6 if faulty else x.shape[1])  # without a limit nothing is dropped
        return x + (taken * score)[..., None] * m.expert(x)

    return embedded(route, router=nn.Linear(WIDTH, 1), expert=nn.Linear(WIDTH, WIDTH))


def causal_only_with_a_mask(faulty: bool) -> Case:
    """facebookresearch/xformers#103, keras-team/keras#23038: without padding, no causal mask."""

    def attend(x: Tensor, padding: Tensor | None = None) -> Tensor:
        later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        hidden = later if padding is not None or not faulty else torch.zeros_like(later)
        scores = (x @ x.mT / WIDTH).masked_fill(hidden, -math.inf)
        return scores.softmax(-1) @ x

    return Case(Causal(attend), texts(count=1), {"causal": True})


def blocks_the_wrong_way(faulty: bool) -> Case:
    """tilde-research/nsa-release#3: an inverted mask on block summaries."""

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
    """state-spaces/mamba#66, huggingface/transformers#32677: left padding enters the state."""

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
    """huggingface/sentence-transformers#3208: the first position is taken, which is padding."""

    def first(_, x: Tensor, mask: Tensor) -> Tensor:
        place = torch.zeros(len(x)).long() if faulty else mask.argmax(1)
        return x[torch.arange(len(x)), place]

    return Case(Embedded(first), text_batches(side="left"))


def lengths_after_padding(faulty: bool) -> Case:
    """huggingface/diffusers#12893: texts are padded before their lengths are measured."""

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
    """HazyResearch/m2#43: a filter as long as the row reads padding on both sides."""

    def mix(_, x: Tensor, mask: Tensor) -> Tensor:
        x = x if faulty else x * mask[..., None]
        steps = torch.arange(x.shape[1])
        kernel = 0.8 ** (steps[:, None] - steps).abs().to(x.dtype)
        return kernel @ x

    return embedded(mix)


def lengths_in_sorted_order(faulty: bool) -> Case:
    """facebookresearch/InferSent#51: rows are put back in order, but their lengths are not."""

    def pool(_, x: Tensor, mask: Tensor) -> Tensor:
        lengths, order = mask.sum(1).sort(descending=True, stable=True)
        total = (x * mask[..., None]).sum(1)
        return total / (lengths if faulty else lengths[order.argsort()])[:, None]

    case = embedded(pool)
    return case._replace(batches=[{k: x[[2, 0, 3, 1]] for k, x in b.items()} for b in case.batches])


def dropout_made_in_forward(faulty: bool) -> Case:
    """yangze0930/NTS-Net#14: a dropout created in `forward` ignores evaluation mode."""
    kept = nn.Dropout(0.5)
    return embedded(lambda m, x, _: (nn.Dropout(0.5) if faulty else m.kept)(x), kept=kept)


def greatest_of_padding(faulty: bool) -> Case:
    """castorini/castor#176: the maximum over time may be at padding."""

    def pool(_, x: Tensor, mask: Tensor) -> Tensor:
        return (x if faulty else x.masked_fill(mask[..., None] == 0, -math.inf)).amax(1)

    return embedded(pool)


def mask_for_several_rows_only(faulty: bool) -> Case:
    """huggingface/transformers#46773: padding is zeroed only if there are several rows."""

    def convolve(m, x: Tensor, mask: Tensor) -> Tensor:
        x = x if faulty and len(x) == 1 else x * mask[..., None]
        return m.conv(F.pad(x.mT, (3, 0))).mT

    return Case(Embedded(convolve, conv=nn.Conv1d(WIDTH, WIDTH, 4)), text_batches(side="left"))


def last_state_of_padding(faulty: bool) -> Case:
    """AnubhavGupta3377/Text-Classification-Models-Pytorch#5: the last state is taken at padding."""

    def encode(m, x: Tensor, mask: Tensor) -> Tensor:
        if not faulty:
            x = pack_padded_sequence(x, mask.sum(1), True, enforce_sorted=False)
        return m.lstm(x)[1][0][-1]

    return embedded(encode, lstm=nn.LSTM(WIDTH, 8, batch_first=True))


def backwards_from_padding(faulty: bool) -> Case:
    """pytorch/pytorch#517: the backward direction starts at padding."""

    def encode(m, x: Tensor, mask: Tensor) -> Tensor:
        if faulty:
            return m.gru(x)[0]
        packed = pack_padded_sequence(x, mask.sum(1), True, enforce_sorted=False)
        return pad_packed_sequence(m.gru(packed)[0], True, total_length=x.shape[1])[0]

    return embedded(encode, gru=nn.GRU(WIDTH, 8, batch_first=True, bidirectional=True))


def softmax_over_rows(faulty: bool) -> Case:
    """PetrochukM/PyTorch-NLP#2: attention weights sum to 1 over the rows."""

    def pool(m, x: Tensor, mask: Tensor) -> Tensor:
        scores = m.score(x).masked_fill(mask[..., None] == 0, -1e9)
        return (scores.softmax(0 if faulty else 1) * x).sum(1)

    return embedded(pool, score=nn.Linear(WIDTH, 1))


def input_written_to(faulty: bool) -> Case:
    """huggingface/transformers#47741, NVIDIA/earth2studio#1133: `forward` changes its input."""

    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(2) if faulty else x * 2

    return Case(Scaled(), [torch.randn(4, 10, WIDTH)], {"causal": False})


def standardized_over_the_batch(faulty: bool) -> Case:
    """deepinv/deepinv#1079, adalca/neurite#42: mean and deviation over the batch, not per image."""

    class Standard(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            dims = (0, 1, 2, 3) if faulty else (1, 2, 3)
            return (x - x.mean(dims, keepdim=True)) / x.std(dims, keepdim=True)

    return Case(Standard(), [torch.randn(4, 3, 8, 8)], {"causal": False})


class OfRealFrames(nn.BatchNorm1d):
    """A batch norm over the real frames, or over all."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return super().forward(x.mT).mT
        y, real = torch.zeros_like(x), mask.bool()
        y[real] = super().forward(x[real])
        return y


def statistics_of_padding(faulty: bool) -> Case:
    """Tomiinek/Multilingual_Text_to_Speech#81, pytorch/pytorch#70529: padding enters statistics."""

    def normalize(m, x: Tensor, mask: Tensor) -> Tensor:
        return m.norm(x, None if faulty else mask) * mask[..., None]

    model = Embedded(normalize, norm=OfRealFrames(WIDTH, momentum=None))
    batches = text_batches(count=1)
    model.train()(**batches[0])
    return Case(model, batches)


def dropout_without_training(faulty: bool) -> Case:
    """Coderx7/SimpleNet#2, deepchem/deepchem#5120: functional dropout is not given the mode."""
    return embedded(lambda m, x, _: F.dropout(x, 0.5, training=True if faulty else m.training))


def last_of_left_padding(faulty: bool) -> Case:
    """unslothai/unsloth-zoo#968: the token count locates the last token only with right padding."""

    def last(_, x: Tensor, mask: Tensor) -> Tensor:
        return x[torch.arange(len(x)), mask.sum(1) - 1] if faulty else x[:, -1]

    return Case(Embedded(last), text_batches(side="left"))


def statistics_of_the_test_batch(faulty: bool) -> Case:
    """hulianyuyy/CorrNet#61: a batch norm has no running statistics."""
    model = nn.Sequential(
        nn.Conv2d(3, WIDTH, 3), nn.BatchNorm2d(WIDTH, momentum=None, track_running_stats=not faulty)
    )
    x = torch.randn(4, 3, 8, 8)
    model.train()(x)
    return Case(model, [x], {"causal": False})


def decoder_that_sees_all(faulty: bool) -> Case:
    """huggingface/transformers#48745: a decoder by its config, but without a causal mask."""

    def attend(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, is_causal=not faulty)

    model = Causal(attend)
    model.config = SimpleNamespace(is_decoder=True)
    return Case(model, texts(count=1))


def blocks_chosen_with_the_future(faulty: bool) -> Case:
    """huggingface/transformers#45820: later blocks compete, and are masked too late."""

    def attend(x: Tensor) -> Tensor:
        size, length = 4, x.shape[1]
        blocks = F.pad(x, (0, 0, 0, -length % size)).unflatten(1, (-1, size)).mean(2)
        over = (torch.arange(blocks.shape[1]) + 1) * size <= torch.arange(length)[:, None] + 1
        scores = x @ blocks.mT / WIDTH
        best = (scores if faulty else scores.masked_fill(~over, -1e9)).topk(2, -1).indices
        chosen = torch.zeros_like(scores).scatter(-1, best, 1.0) * over
        return (scores.exp() * chosen) @ blocks

    return Case(Causal(attend), texts(rows=3, length=48, count=1), {"causal": True})


def nothing_to_attend_to(faulty: bool) -> Case:
    """tracel-ai/burn#4697: with a causal mask, padding attends to nothing and gets NaN."""

    def attend(_, x: Tensor, mask: Tensor) -> Tensor:
        length = x.shape[1]
        allowed = torch.ones(length, length).tril().bool() & mask[:, None].bool()
        for _ in range(2):
            scores = (x @ x.mT / WIDTH).masked_fill(~allowed, -math.inf)
            weights = scores.softmax(-1)
            x = (weights if faulty else weights.nan_to_num()) @ x
        return x

    return Case(Embedded(attend), text_batches(side="left"), {"causal": True})


def positions_of_rows(faulty: bool) -> Case:
    """songyangco/GETNext#2, Lightning-AI/pytorch-lightning#20203: every row gets one position."""

    def add(m, x: Tensor, _: Tensor) -> Tensor:
        place = m.places(torch.arange(x.shape[0 if faulty else 1]))
        return x + (place[:, None] if faulty else place)

    return embedded(add, places=nn.Embedding(512, WIDTH))


def view_for_transpose(faulty: bool) -> Case:
    """rish-16/tokenlearner-pytorch#1: `view` mixes values of different rows."""

    def encode(m, x: Tensor, _: Tensor) -> Tensor:
        rows, length, width = x.shape
        if faulty:
            return m.gru(x.reshape(length, rows, width))[0].reshape(rows, length, -1)
        return m.gru(x.transpose(0, 1))[0].transpose(0, 1)

    return embedded(encode, gru=nn.GRU(WIDTH, 8))


def masks_of_other_heads(faulty: bool) -> Case:
    """lsdefine/attention-is-all-you-need-keras#36: heads first in scores, rows first in masks."""

    def attend(_, x: Tensor, mask: Tensor) -> Tensor:
        heads = x.unflatten(-1, (2, -1)).permute(2, 0, 1, 3).flatten(0, 1)
        real = mask.repeat_interleave(2, 0) if faulty else mask.repeat(2, 1)
        y = F.scaled_dot_product_attention(heads, heads, heads, attn_mask=real[:, None].bool())
        return y.unflatten(0, (2, -1)).permute(1, 2, 0, 3).flatten(2)

    return embedded(attend)


def scale_of_the_batch(faulty: bool) -> Case:
    """microsoft/onnxruntime#10111, Anush008/fastembed-rs#107: all rows share one int8 scale."""

    def quantize(_, x: Tensor, __: Tensor) -> Tensor:
        scale = (x.abs().amax() if faulty else x.abs().amax(-1, keepdim=True)) / 127
        return (x / scale).round() * scale

    return embedded(quantize)


def convolution_to_both_sides(faulty: bool) -> Case:
    """peustr/wavenet#1, maxim5/time-series-machine-learning#12: `same` padding is not causal."""
    model = Causal(lambda x: model.conv(F.pad(x.mT, (1, 1) if faulty else (2, 0))).mT)
    model.conv = nn.Conv1d(WIDTH, WIDTH, 3)
    return Case(model, texts(count=1), {"causal": True})


def axis_of_rows_squeezed(faulty: bool) -> Case:
    """clovaai/rexnet#20, omertov/encoder4editing#100: `squeeze` drops the axis of a single row."""

    class Pooled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.mean((2, 3), keepdim=True)
            return y.squeeze() if faulty else y.flatten(1)

    return Case(Pooled(), [torch.randn(4, 3, 8, 8)], {"causal": False})


def padding_in_a_decoder(faulty: bool) -> Case:
    """facebookresearch/fairseq#537: a causal mask hides padding on the right, not on the left."""

    def attend(_, x: Tensor, mask: Tensor) -> Tensor:
        allowed = torch.ones(x.shape[1], x.shape[1]).tril().bool().expand(len(x), -1, -1)
        if not faulty:
            allowed = allowed & mask[:, None].bool() | torch.eye(x.shape[1]).bool()
        return F.scaled_dot_product_attention(x, x, x, attn_mask=allowed)

    return Case(Embedded(attend), text_batches(side="left"), {"causal": True})


BUGS: dict[Callable[[bool], Case], RebuiltBug] = {
    build: RebuiltBug(build, question, verdict=verdict)
    for (question, verdict), builds in {
        ("padding", "broken"): (
            subsampled_mask,
            mask_under_another_name,
            bias_before_a_convolution,
            capacity_taken_by_padding,
            state_from_padding,
            first_slot,
            lengths_after_padding,
            long_filter,
            greatest_of_padding,
            mask_for_several_rows_only,
            last_state_of_padding,
            backwards_from_padding,
            last_of_left_padding,
            nothing_to_attend_to,
            padding_in_a_decoder,
        ),
        ("batch_mates", "broken"): (
            floor_of_the_loudest,
            lengths_in_sorted_order,
            softmax_over_rows,
            standardized_over_the_batch,
            statistics_of_the_test_batch,
            positions_of_rows,
            view_for_transpose,
            masks_of_other_heads,
            scale_of_the_batch,
        ),
        ("future", "broken"): (
            causal_only_with_a_mask,
            blocks_the_wrong_way,
            window_without_an_end,
            decoder_that_sees_all,
            blocks_chosen_with_the_future,
            convolution_to_both_sides,
        ),
        ("forward", "broken"): (dropout_made_in_forward, dropout_without_training),
        ("forward", "look"): (input_written_to,),
        ("batch_mates", "look"): (axis_of_rows_squeezed,),
        ("modes", "look"): (statistics_of_padding,),
    }.items()
    for build in builds
}


@pytest.mark.parametrize("build", BUGS, ids=lambda build: build.__name__)
def test_the_bug_of_an_issue_is_found_and_its_correct_twin_is_fine(build):
    bug = BUGS[build]
    found = inspected(built(bug, True), bug.question).findings[bug.question]
    assert found.verdict == bug.verdict, found
    findings = inspected(built(bug, False), bug.question).findings.values()
    assert [str(each) for each in findings if each.verdict in ("failed", "broken", "look")] == []
