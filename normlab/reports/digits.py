"""With how many digits a score is written."""


def figure(value: float, score: str) -> str:
    """Write a value with the digits that its kind is read to."""
    return f"{value:,.0f}" if "_to/" in score else f"{value:.{_digits(score)}f}"


def _digits(score: str) -> int:
    return 3 if any(word in score for word in ("loss", "accuracy", "bits", "stability")) else 2
