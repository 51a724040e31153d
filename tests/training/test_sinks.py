import logging

import pytest

from normlab.training.sinks import Notice, Sink, SinkGroup
from tests.training.sink_runs import FINGERPRINT, info, record, scores


class Memory(Sink):
    def __init__(self):
        self.calls: list[tuple] = []

    def open(self, run):
        self.calls.append(("open", run.fingerprint))
        return Notice("hello")

    def log(self, row, scores=None):
        self.calls.append(("log", row["step"]))

    def note(self, notice):
        self.calls.append(("note", notice.text))

    def close(self, record):
        self.calls.append(("close", record))


class Broken(Memory):
    def log(self, row, scores=None):
        raise RuntimeError("no service\nsecond line")


class RequiredBroken(Broken):
    required = True


def test_every_sink_gets_all_calls_and_the_opening_lines_of_all_sinks(tmp_path):
    a, b = Memory(), Memory()
    group = SinkGroup({"a": a, "b": b})
    end = record()
    group.open(info(tmp_path))
    group.log({"step": 1}, scores(1.0, 2.0))
    group.note(Notice("early stop"))
    group.close(end)
    opened = [("open", FINGERPRINT), ("note", "hello"), ("note", "hello")]
    assert a.calls == b.calls == [*opened, ("log", 1), ("note", "early stop"), ("close", end)]


def test_a_failing_sink_is_dropped_with_one_note(tmp_path):
    good, bad = Memory(), Broken()
    group = SinkGroup({"bad": bad, "good": good})
    for step in range(1, 4):
        group.log({"step": step})
    group.close(None)
    note = "sink bad stopped, but training continues: RuntimeError: no service"
    assert good.calls == [("log", 1), ("note", note), ("log", 2), ("log", 3), ("close", None)]
    assert bad.calls == []


def test_the_failure_of_the_last_sink_is_logged_as_a_warning(caplog):
    with caplog.at_level(logging.WARNING, logger="normlab"):
        SinkGroup({"bad": Broken()}).log({"step": 1})
    assert "sink bad stopped" in caplog.text


def test_a_failing_required_sink_stops_the_run_after_the_others_have_logged():
    good = Memory()
    with pytest.raises(RuntimeError, match="no service"):
        SinkGroup({"file": RequiredBroken(), "good": good}).log({"step": 1})
    assert good.calls == [("log", 1)]


def test_a_warning_is_logged_unless_a_console_prints_it(caplog):
    for names in ((), ("console",), ("jsonl",)):
        SinkGroup({name: Memory() for name in names}).note(Notice(f"{names}", warning=True))
    SinkGroup({"jsonl": Memory()}).note(Notice("early stop"))
    assert caplog.messages == ["warning: ('jsonl',)"]
