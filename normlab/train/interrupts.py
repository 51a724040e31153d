"""SIGTERM and Ctrl-C as a request that the loop honours between two steps, after saving."""

import signal
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """While entered, remember a signal instead of dying of it; a second one acts at once."""

    SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._former: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        for number in self.SIGNALS:
            try:
                self._former[number] = signal.signal(number, self._remember)
            except ValueError:  # not the main thread: the host program handles signals
                return self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        signal.signal(number, self._former[number])
