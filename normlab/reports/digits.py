"""With how many digits a score is written."""

_HUGE = 1e5


def figure(value: float, score: str) -> str:
    """Write a value with the digits that its kind is read to, and a huge one with three."""
    if "_to/" in score:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= _HUGE else f"{value:.{_digits(score)}f}"


def _digits(score: str) -> int:
    return 3 if any(word in score for word in ("loss", "accuracy", "bits", "stability")) else 2
