"""The report of `normlab.inspect` as text, JSON, HTML and an exception."""

import json

import pytest

import normlab
from tests.any_model.toys import Encoder


def test_text_json_and_html_begin_with_the_most_harmful_finding(batch, tmp_path):
    report = normlab.inspect(Encoder(masked=False), [batch], causal=False)
    assert "\nbroken          padding: the output changes by " in str(report)
    entries = json.loads(report.to_json())["findings"]
    assert entries[0]["name"] == "padding" and len(entries) == len(report.findings)
    report.to_html(tmp_path / "report.html")
    assert "encoder.layers.0.self_attn: " in (tmp_path / "report.html").read_text("utf-8")


def test_raise_if_broken_raises_only_for_broken_findings(batch):
    normlab.inspect(Encoder(), [batch], checks=["padding"]).raise_if_broken()
    leaking = normlab.inspect(Encoder(masked=False), [batch], checks=["padding"])
    with pytest.raises(AssertionError, match=r"padding: the output changes by"):
        leaking.raise_if_broken()
