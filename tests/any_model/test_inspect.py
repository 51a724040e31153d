"""`normlab.inspect`: the title, invalid arguments, and questions that raise an exception."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import normlab
from normlab.cli import main
from tests.any_model.models import sound
from tests.any_model.pairs import WIDTH, text_batches
from tests.any_model.toys import Embedded, Encoder, X, mean


def test_the_title_reports_the_compared_rows_and_outputs(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def outputs(_, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        return {"tokens": x, "sentence": mean(x, mask)}

    model = Embedded(outputs)
    batch = {name: x.repeat(2, 1) for name, x in text_batches()[0].items()}
    report = normlab.inspect(model, [batch])
    title = report.title
    assert max(map(len, report.text().splitlines())) <= 80
    words = "compared: rows 0, 4 and 5 of 8, of up to 24 positions; outputs tokens and sentence"
    assert title.endswith(words), title
    title = normlab.inspect(nn.LSTM(WIDTH, WIDTH), [X], checks="forward").title  # by its settings
    assert "rows 0, 2 and 3 of 6 on axis 1 (batch_first=False), of up to 4 positions" in title


class Failing(nn.Module):
    """Fails for more than one row."""

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 1:
            raise RuntimeError("one row only")
        return x


def test_an_exception_in_a_question_is_a_failed_finding_and_fails_the_command(capsys):
    report = normlab.inspect(Failing(), [X], checks=["batch_mates"])
    found = report.findings["batch_mates"]
    assert found.verdict == "failed" and "RuntimeError: one row only" in found.answer
    with pytest.raises(AssertionError, match="batch_mates: no answer"):
        report.raise_if_broken()
    place = "tests.any_model.test_inspect"
    assert main(["inspect", "--module", f"{place}:Failing", "--inputs", f"{place}:X"]) == 1
    assert "\nfailed          batch_mates: no answer" in capsys.readouterr().out


def test_warnings_about_nested_tensors_are_suppressed_only_during_an_inspection(recwarn):
    torch.set_warn_always(True)
    try:
        case = sound("nn.TransformerEncoder")
        normlab.inspect(case.model, case.batches, checks=["padding"])
        assert not [each for each in recwarn if "nested tensors" in str(each.message)]
        with torch.no_grad():
            case.model(**case.batches[0])
    finally:
        torch.set_warn_always(False)
    assert [each for each in recwarn if "nested tensors" in str(each.message)]


def test_no_question_fails_or_is_broken_for_a_sound_encoder():
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)

    def encode(m, x: Tensor, mask: Tensor) -> Tensor:
        return m.encoder(x, src_key_padding_mask=mask == 0)

    torch.manual_seed(0)
    model = Embedded(encode, encoder=nn.TransformerEncoder(layer, 2)).eval()
    found = normlab.inspect(model, text_batches(), checks="all").findings
    assert [str(each) for each in found.values() if each.verdict in ("failed", "broken")] == []


NUMBERS = torch.zeros(2, 3)


REAL = torch.tensor([[1.0, 1, 1], [1, 0, 0]])


ROWS = {"input_ids": torch.ones(2, 3, dtype=torch.long)}


@pytest.mark.parametrize(
    ("batches", "options", "says"),
    [
        (None, {}, "cannot examine a Encoder without its inputs"),
        (iter(()), {}, "already used up"),
        (3, {}, "batches is a int"),
        (["text"], {}, "no tensor: input_ids"),
        ([{"ids": ROWS["input_ids"]}], {}, "cannot run one row of the first batch: TypeError"),
        ([ROWS | {"attention_mask": (1 - REAL) * -1e4}], {}, "has the value -1e\\+04; use 1"),
        ([ROWS | {"attention_mask": 1 - REAL}], {}, "row 0 is all padding; is the mask inverted"),
        (
            [ROWS | {"attention_mask": REAL[:, None, None]}],
            {},
            r"shape \[2, 1, 1, 3\], but a mask",
        ),
        (
            [ROWS | {"attention_mask": REAL[:, :2]}],
            {},
            r"\[2, 3\] has no token axis of its mask's length 2",
        ),
        ([ROWS], {"mask": "maks"}, "mask='maks' is not an input; choose from input_ids"),
        ([ROWS | {"past_key_values": 1}], {}, "past_key_values is a cache with tokens"),
        ([ROWS], {"max_rows": 0}, "max_rows=0"),
        ([ROWS], {"rows": 2}, "rows=2 is out of range: input_ids has shape"),
        ([ROWS], {"positions": -3}, "positions=-3 is out of range: input_ids has shape"),
        ([ROWS], {"rows": 1, "positions": -1}, "rows and positions are both axis 1"),
        ([{"input_ids": torch.zeros(0, 3)}], {}, "input_ids is empty"),
        (
            [ROWS],
            {"forward": lambda model, batch: "text"},
            "returns a str without a float tensor",
        ),
        ([ROWS], {"checks": ["leek"]}, "'leek' is not a question"),
        ([ROWS], {"checks": []}, r"checks=\[\] names no question; omit checks="),
        ([ROWS], {"mask": {"a": "real", "b": "real"}}, "mask=.* has 2 entries; pass one input's"),
    ],
)
def test_invalid_batches_and_options_are_refused_with_the_reason(batches, options, says):
    with pytest.raises(ValueError, match=says):
        normlab.inspect(Encoder(), batches, **options)


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
        normlab.inspect(model(), [NUMBERS])


def test_a_compiled_or_parallel_model_is_unwrapped():
    for wrapped in (nn.DataParallel(nn.Linear(3, 3)), torch.compile(nn.Linear(3, 3))):
        found = normlab.inspect(wrapped, [NUMBERS], checks=["batch_mates"])
        assert found.title.startswith(
            "Linear, 12 parameters in float32; compared: rows 0 and 1 of 2"
        )


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_of_a_data_loader_leave_the_random_states_alone(shuffle):
    class Noisy(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return torch.randn(5, 8) + np.random.rand()

    loader = torch.utils.data.DataLoader(Noisy(), batch_size=4, shuffle=shuffle)
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)).eval()
    for examine in (
        lambda: normlab.inspect(model, loader, checks=["forward"]),
        lambda: normlab.swap(model, "rms", calibrate=loader),
        lambda: normlab.fold_norms(model, loader),
    ):
        torch.manual_seed(7), np.random.seed(7)
        expected = torch.rand(()), np.random.rand()
        torch.manual_seed(7), np.random.seed(7)
        examine()
        assert (torch.rand(()), np.random.rand()) == expected
