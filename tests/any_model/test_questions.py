"""The questions of `normlab.inspect(model, batches)`, on small models whose answers are known."""

import json
import signal
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import normlab
from normlab.any_model.batches.from_batch import Conventions, example_of
from normlab.any_model.batches.outputs import Overlap
from normlab.any_model.tracing.calls import Runner
from normlab.any_model.tracing.float64 import float64_operations
from normlab.any_model.tracing.restore import unchanged
from tests.any_model.pairs import same, state

QUICK = ("forward", "padding", "batch_mates", "future", "modes")


class Encoder(nn.Module):
    """An embedding and a Transformer encoder, with or without its mask."""

    def __init__(self, masked=True):
        super().__init__()
        self.masked = masked
        self.embedding = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, input_ids, attention_mask):
        padding = attention_mask == 0 if self.masked else None
        return self.encoder(self.embedding(input_ids), src_key_padding_mask=padding)


class Normed(nn.Module):
    """A linear layer on [rows, positions, features], then a norm on [rows, features, positions].

    Each pass writes to its statistics and weights, as in some models.
    """

    def __init__(self, norm=None, wrong=None):
        super().__init__()
        self.embedding = nn.Embedding(50, 8, max_norm=0.5)
        self.norm, self.wrong = norm or nn.BatchNorm1d(8), wrong
        self.register_buffer("passes", torch.zeros(()))
        self.cache = [torch.zeros(2)]

    def forward(self, input_ids, attention_mask=None):
        self.passes += 1
        self.cache[0] += 1
        self.cache.append(self.passes)
        x = self.norm(self.embedding(input_ids).mT).mT
        if self.wrong == "random":
            x = F.dropout(x, 0.5, training=True)
        return x * torch.nan if self.wrong == "nan" else x


@pytest.fixture
def batch():
    torch.manual_seed(0)
    ids = torch.randint(1, 50, (3, 12))
    mask = (torch.arange(12) < torch.tensor([[12], [7], [9]])).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def verdicts(report):
    return {each.name: each.verdict for each in report.findings.values()}


def test_a_mask_that_is_passed_keeps_padding_out_and_one_forgotten_lets_it_in(batch, tmp_path):
    sound, leaking = (
        normlab.inspect(Encoder(masked), [batch], causal=False) for masked in (True, False)
    )
    assert {*verdicts(sound).values()} == {"fine", "does not apply"}
    values = sound.findings["padding"].values.values()
    assert max(each["in_model_dtype"] for each in values) < 1e-5
    found = leaking.findings["padding"]
    assert (found.verdict, found.module) == ("broken", "encoder.layers.0.self_attn")
    assert found.value > 0.01 and found.threshold == 1e-3
    assert leaking.findings["batch_mates"].verdict == "fine"
    assert "\nbroken          padding: the output changes by " in str(leaking)
    entries = json.loads(leaking.to_json())["findings"]
    assert entries[0]["name"] == "padding" and len(entries) == len(leaking.findings)
    leaking.to_html(tmp_path / "report.html")
    assert "encoder.layers.0.self_attn: " in (tmp_path / "report.html").read_text("utf-8")
    sound.raise_if_broken()
    with pytest.raises(AssertionError, match=r"padding: the output changes by"):
        leaking.raise_if_broken()


def test_a_batch_norm_sees_the_batch_by_design_and_padding_by_mistake(batch):
    torch.manual_seed(0)
    found = normlab.inspect(Normed(), [batch], checks=["modes", "batch_mates"]).findings
    assert (found["modes"].verdict, found["modes"].module) == ("look", "norm")
    assert found["batch_mates"].verdict == "fine" and found["modes"].values["training"] > 0.1
    whole = {name: x[:1].repeat(3, 1) for name, x in batch.items()}
    found = normlab.inspect(Normed(), [whole], checks=["modes"]).findings["modes"]
    assert found.verdict == "fine" and "by design" in found.answer


def test_a_norm_over_time_sees_the_future(batch):
    group = Normed(nn.GroupNorm(1, 8))
    found = normlab.inspect(group, [batch], causal=True, checks=["future"]).findings["future"]
    assert (found.verdict, found.module) == ("broken", "norm")
    assert found.answer.partition("; ")[2].startswith("norm: GroupNorm, pools over position, later")
    found = normlab.inspect(group, [batch], checks=["future"]).findings["future"]
    assert found.verdict == "look" and "causal=True" in found.answer


def test_a_decoders_own_tokens_may_not_see_later_ones(batch):
    class Both(Encoder):
        def __init__(self, causal):
            super().__init__()
            self.causal = causal
            layer = nn.TransformerDecoderLayer(16, 4, 32, batch_first=True)
            self.decoder = nn.TransformerDecoder(layer, 1)

        def forward(self, input_ids, attention_mask, decoder_input_ids):
            seen, y = super().forward(input_ids, attention_mask), self.embedding(decoder_input_ids)
            later = nn.Transformer.generate_square_subsequent_mask(y.shape[1])
            return self.decoder(y, seen, later if self.causal else None)

    batch["decoder_input_ids"] = batch["input_ids"][:, :7] + 1
    sound, leaking = (normlab.inspect(Both(causal), [batch]) for causal in (True, False))
    assert sound.findings["future"].verdict == sound.findings["batch_mates"].verdict == "fine"
    found = leaking.findings["future"]
    assert (found.verdict, found.module) == ("broken", "decoder.layers.0.self_attn")
    assert "The first 3, 6 decoder positions" in found.answer


@pytest.mark.parametrize(("wrong", "says"), [("random", "one run to the next"), ("nan", "NaN")])
def test_a_pass_that_is_random_or_has_nan_is_reported_first_and_the_rest_skipped(
    batch, wrong, says
):
    found = normlab.inspect(Normed(wrong=wrong), [batch], checks=QUICK)
    assert next(iter(found.findings)) == "forward" and says in found.findings["forward"].answer
    assert verdicts(found) == {"forward": "broken", **dict.fromkeys(QUICK[1:], "does not apply")}


def test_rounding_is_that_of_the_shortest_row_too(batch):
    token = batch["input_ids"][1, 0]

    class Rounding(nn.Embedding):
        def forward(self, input_ids, attention_mask):
            y = super().forward(input_ids)
            narrow = len(y) > 1 and y.dtype != torch.float64
            return y * (1 + 1e-3 * narrow * (input_ids == token)[..., None])

    found = normlab.inspect(Rounding(50, 4), [batch], checks=["batch_mates"]).findings[
        "batch_mates"
    ]
    assert found.verdict == "fine" and "float32 rounding changes the output by 0.0" in found.answer
    assert 1e-4 < found.values["row 1 among 3"]["in_model_dtype"] < 1e-3


def test_values_under_padding_that_only_matter_if_they_are_unusual_are_worth_a_look(batch):
    class Convolution(Normed):
        def forward(self, input_ids, attention_mask):
            return self.norm(self.embedding(input_ids).mT).mT  # the padding's embedding is 0

    model = Convolution(nn.Conv1d(8, 8, 3, padding=1))
    model.embedding = nn.Embedding(50, 8, padding_idx=0)
    found = normlab.inspect(model, [batch], checks=["padding"]).findings["padding"]
    assert (found.verdict, found.module) == ("look", "norm")
    assert "with unusual values under the padding; norm: Conv1d, a conv" in found.answer


def test_a_model_of_one_length_is_asked_about_values_under_its_padding(batch):
    model = Normed(nn.LayerNorm(12))
    found = normlab.inspect(model, [batch], max_positions=5, checks=["padding"]).findings["padding"]
    assert (found.verdict, found.module) == ("broken", "norm")
    assert "One row of 4 positions, padded by 8; longer rows fail" in found.answer


def test_a_packed_lstm_is_sound_through_forward():
    torch.manual_seed(0)
    lstm = nn.LSTM(8, 4, batch_first=True, bidirectional=True)

    def forward(model, batch):
        x, lengths = batch
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(model(packed)[0], batch_first=True, total_length=x.shape[1])[0]

    given = torch.randn(3, 10, 8), torch.tensor([6, 10, 3])
    found = normlab.inspect(lstm, [given], forward=forward, mask=1, checks=QUICK)
    assert verdicts(found)["padding"] == verdicts(found)["batch_mates"] == "fine"
    plain = normlab.inspect(lstm, [given[:1]], mask=torch.ones(3, 10), checks=["padding"])
    assert plain.findings["padding"].verdict == "broken"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_float64_reaches_every_operation_and_no_weight(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(4, 4, 3), nn.Flatten(), nn.Linear(24, 3)).to(dtype)
    x = torch.randn(2, 4, 8, dtype=dtype)
    with torch.no_grad(), float64_operations():
        y = model(x).float() + torch.ones(3, dtype=torch.bfloat16)
    assert y.dtype == torch.float64 and model[0].weight.dtype == dtype
    assert torch.equal(y, model.double()(x.double()) + 1)


def test_float64_stays_in_its_thread():
    lstm, x, conv = nn.LSTM(4, 3), torch.randn(5, 2, 4), F.conv1d
    failed: list[str] = []

    def use():
        try:
            y = lstm(F.conv1d(x, torch.ones(2, 2, 1)))[0]
            failed.extend([str(y.dtype)] * (y.dtype != torch.float32))
        except Exception as error:
            failed.append(str(error))

    with torch.no_grad(), float64_operations():
        assert F.conv1d is conv and lstm(x)[0].dtype == torch.float64
        thread = Thread(target=use)
        thread.start()
        thread.join()
    assert failed == []


def test_an_operation_without_float64_runs_in_float32_and_is_named():
    x = torch.randn(4)
    with torch.no_grad(), float64_operations() as mode:
        y = torch.quantize_per_tensor(2 * x, 0.1, 0, torch.qint8).dequantize() + 1
    assert y.dtype == torch.float64 and mode.without_float64 == {"aten::quantize_per_tensor"}
    with torch.no_grad(), float64_operations(), pytest.raises(RuntimeError, match="size of tensor"):
        x + torch.ones(3)


@pytest.fixture
def padded_on_the_left(batch):
    """Return an example of 3 rows and 8 positions whose padding comes first."""
    left = {name: x.flip(1) for name, x in batch.items()}
    left["position_ids"] = (left["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return example_of(Encoder(), left, Conventions(max_positions=8))


def test_more_padding_changes_nothing_at_the_other_positions(padded_on_the_left):
    example = padded_on_the_left
    assert (example.side, example.size, example.length) == ("left", 3, 8)
    base = example.values["input_ids"][0]
    padded, other = (example.padded(4, other=other).values for other in (False, True))
    ids, others = padded["input_ids"][0], other["input_ids"][0]
    assert ids[:4].tolist() == [0] * 4 and bool((others[:4] > 0).all())
    assert torch.equal(ids[4:], base) and torch.equal(ids[4:], others[4:])
    assert padded["attention_mask"].tolist() == [[0] * 4 + [1] * 8]
    assert padded["position_ids"].tolist() == [[4] * 4 + [*range(4, 12)]]


def test_other_rows_and_later_tokens_are_all_that_change(padded_on_the_left):
    example = padded_on_the_left
    mates = example.with_other_rows(0).values["input_ids"] == example.values["input_ids"]
    assert mates[0].all() and not mates[1:].any()
    later = example.with_later_tokens(3).values["input_ids"] == example.values["input_ids"][:1]
    assert later.tolist() == [[True] * 3 + [False] * 5]


def test_outputs_of_two_lengths_are_compared_where_they_overlap():
    y, base = Overlap("left")(torch.arange(6).view(1, 6), torch.arange(4).view(1, 4))
    assert y.tolist() == [[2, 3, 4, 5]] and base.tolist() == [[0, 1, 2, 3]]
    y, base = Overlap("right", 6, 2)(torch.arange(6), torch.arange(6))
    assert y.tolist() == base.tolist() == [0, 1]


def test_calls_are_in_order_and_copied_before_they_are_changed_in_place():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    calls, y = Runner(model).record(example_of(model, torch.randn(2, 3)))
    assert [call.name for call in calls] == ["", "0", "1"]
    assert bool((calls[1].output < 0).any()) and torch.equal(calls[2].output, y["output"])


@pytest.mark.parametrize("stop", [*range(0, 24, 3), None])
def test_all_is_as_before_wherever_a_pass_is_interrupted(batch, stop):
    model = Normed().train()
    model.embedding.weight.grad = torch.ones(50, 8)
    passes = iter(range(1000))

    def interrupt(*_):
        torch.rand(1), np.random.rand()
        if next(passes) == stop:
            raise KeyboardInterrupt

    model.norm.register_forward_hook(interrupt)
    before = state(model, [batch])
    try:
        normlab.inspect(model, [batch], checks=QUICK)
        stopped = False
    except KeyboardInterrupt:
        stopped = True
    assert stopped == (stop is not None) and same(before, state(model, [batch]))


def test_weights_that_share_their_storage_are_all_restored():
    weights = torch.randn(2, 8, 8)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    for each, weight in zip(model, weights, strict=True):
        each.weight = nn.Parameter(weight)
    before = weights.clone()
    normlab.inspect(model, [torch.randn(3, 4, 8)], checks=["precision"])
    assert torch.equal(weights, before)


def test_attributes_and_settings_that_a_model_changes_are_restored():
    model = Normed()
    with unchanged(model):
        model.new, model.cache, model.norm = 1, None, None
        model.embedding.weight.data[0] += 1
        torch.set_default_dtype(torch.float64)
    assert not hasattr(model, "new") and isinstance(model.norm, nn.BatchNorm1d)
    assert torch.get_default_dtype() == torch.float32 and len(model.cache) == 1


@pytest.fixture
def press():
    """Return a function that presses Ctrl-C; background jobs would ignore it otherwise."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, former)


def test_ctrl_c_waits_for_the_next_operation_and_for_the_restoring(press):
    class Pressing(dict):
        def update(self, *args):
            press(), press()
            super().update(*args)

    model, seen, handler = nn.Linear(2, 2), [], signal.getsignal(signal.SIGINT)
    model.settings = Pressing(a=1)
    with pytest.raises(KeyboardInterrupt), unchanged(model):
        model.train(False)
        press()
        seen.append("before the operation")
        torch.ones(1)
        seen.append("after it")
    assert seen == ["before the operation"]
    assert model.settings == {"a": 1} and model.training
    assert signal.getsignal(signal.SIGINT) is handler


def test_ctrl_c_pressed_twice_stops_a_pass_without_operations(press):
    with pytest.raises(KeyboardInterrupt), unchanged(nn.Linear(2, 2)):
        press(), press()
        pytest.fail("still running")


def test_ctrl_c_between_two_contexts_is_not_lost(press):
    model = nn.Linear(2, 2)
    with pytest.raises(KeyboardInterrupt), unchanged(model):
        with unchanged(model):
            press()
        torch.ones(1)
        pytest.fail("still running")


X = torch.zeros(2, 3)
MASK = torch.tensor([[1.0, 1, 1], [1, 0, 0]])
IDS = {"input_ids": torch.ones(2, 3, dtype=torch.long)}


@pytest.mark.parametrize(
    ("batches", "options", "says"),
    [
        (None, {}, "cannot examine a Encoder without its inputs"),
        (iter(()), {}, "already used up"),
        (3, {}, "batches is a int"),
        (["text"], {}, "no tensor: input_ids"),
        ([{"ids": IDS["input_ids"]}], {}, "cannot run one row of the first batch: TypeError"),
        ([IDS | {"attention_mask": (1 - MASK) * -1e4}], {}, "has the value -1e\\+04: use 1"),
        ([IDS | {"attention_mask": 1 - MASK}], {}, "row 0 is all padding; is it inverted"),
        ([IDS | {"attention_mask": MASK[:, None, None]}], {}, r"is \[2, 1, 1, 3\]: a mask"),
        (
            [IDS | {"attention_mask": MASK[:, :2]}],
            {},
            r"\[2, 3\] has no token axis of its mask's length 2",
        ),
        ([IDS], {"mask": "maks"}, "mask='maks' is not an input; choose from input_ids"),
        ([IDS | {"past_key_values": 1}], {}, "a cache holds tokens"),
        ([IDS], {"max_rows": 0}, "max_rows=0"),
        ([IDS], {"rows": 2}, "rows=2: input_ids has the shape"),
        ([IDS], {"positions": -3}, "positions=-3: input_ids has the shape"),
        ([IDS], {"rows": 1, "positions": -1}, "rows and positions are both axis 1"),
        ([{"input_ids": torch.zeros(0, 3)}], {}, "input_ids is empty"),
        ([IDS], {"forward": lambda model, batch: "text"}, "returns a str without a float tensor"),
        ([IDS], {"checks": ["leek"]}, "no question 'leek'"),
    ],
)
def test_bad_input_gets_a_sentence(batches, options, says):
    with pytest.raises(ValueError, match=says):
        normlab.inspect(Encoder(), batches, **options)


@pytest.mark.parametrize("name", ["attention_mask", "src_key_padding_mask"])
def test_a_mask_that_marks_only_the_padding_as_real_is_inverted(batch, name):
    model = Encoder()
    model.config = SimpleNamespace(pad_token_id=0)
    normlab.inspect(model, [batch], checks=["forward"])
    batch["input_ids"][0, -1] = 0  # or row 0 would have no position marked as real
    mask = ((batch["input_ids"] == 0) == (name == "attention_mask")).long()
    with pytest.raises(ValueError, match=f"{name} marks only the padding of input_ids"):
        normlab.inspect(model, [{"input_ids": batch["input_ids"], name: mask}])


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (lambda: nn.Linear(3, 3, device="meta"), "weight is on the meta device"),
        (lambda: torch.jit.script(nn.Linear(3, 3)), "scripted"),
        (lambda: torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 3))), "quant"),
    ],
)
def test_a_model_that_cannot_be_examined_is_refused(model, says):
    with pytest.raises(ValueError, match=says):
        normlab.inspect(model(), [X])


def test_a_compiled_or_parallel_model_is_unwrapped():
    for wrapped in (nn.DataParallel(nn.Linear(3, 3)), torch.compile(nn.Linear(3, 3))):
        found = normlab.inspect(wrapped, [X], checks=["batch_mates"])
        assert found.title.startswith(
            "Linear, 12 parameters in float32; compared: rows 0 and 1 of 2"
        )
