"""The group norm paper's drawing: pictures by N, C and (H, W), and what each norm pools of them.

Wu and He 2018, figure 2. A picture's pixels are the positions of a stream and its channels the
features, so the drawing is that of text with other words at its edges. What the paper calls layer
norm is `seqn` here, of a whole picture; `ln` is that of one pixel over its channels (ConvNeXt's).
"""

from collections.abc import Sequence

from normlab.commands._terminal import print_table
from normlab.explain.block import EXAMPLE, Axes, axes_in_words
from normlab.explain.dependence import SHAPE
from normlab.explain.page import Page
from normlab.explain.terminal import heading, say

PICTURE = Axes(("N", "(H, W)", "C"), ("N", "H, W", "C"))
FIGURE = {
    "bn": "batch norm",
    "seqn": "layer norm",
    "in": "instance norm",
    "gn_sample": "group norm",
}
"""The paper's four, in its order, by their options here."""
_TORCH = {"bn": "BatchNorm2d", "seqn": "GroupNorm(1, C)", "in": "InstanceNorm2d"}
_TORCH |= {"gn_sample": "GroupNorm(G, C)", "ln": "LayerNorm, channels last"}
_ACROSS = 4


def show(pages: Sequence[Page]) -> None:
    """Print each norm's pool in a block of pictures, and what the norms are called elsewhere."""
    samples, pixels, channels = SHAPE
    heading(
        f"Of {samples} pictures (N) of {pixels} pixels (H, W) and {channels} channels (C, across)"
    )
    say("@ a value, # what shares its mean and variance, . what does not\n")
    for first in range(0, len(pages), _ACROSS):
        for line in _drawn(pages[first : first + _ACROSS]):
            say(line)
    columns = ["norm", "in the paper", "pools over", "in torch"]
    rows = [
        [
            page.name,
            FIGURE.get(page.name, "-"),
            axes_in_words(page.pools, PICTURE) + (" of a group" if page.changed else ""),
            _TORCH.get(page.name, "-"),
        ]
        for page in pages
    ]
    notes = [f"{p.name} is drawn with {k}={v}" for p in pages for k, v in p.changed.items()]
    print_table(columns, rows, notes=[*notes, "the paper: Wu and He 2018, figure 2"])
    say("Go on: normlab explain --pictures --svg FILE      as a drawing of cubes")
    say("       normlab train task=digits norm=gn_sample   a residual network with it")


def _drawn(pages: Sequence[Page]) -> list[str]:
    samples, pixels, channels = SHAPE
    width = samples * (channels + 1) + 5
    numbered = "".join(f"N {s + 1}".ljust(channels + 1) for s in range(samples))
    lines = [
        " " * 8 + "".join(page.name.ljust(width) for page in pages),
        " " * 8 + numbered.ljust(width) * len(pages),
    ]
    for pixel in range(pixels):
        cut = ["".join(_row(page, pixel)).ljust(width) for page in pages]
        lines.append(f"H, W {pixel + 1}  " + "".join(cut))
    return [line.rstrip() for line in [*lines, ""]]


def _row(page: Page, pixel: int) -> list[str]:
    samples, _, channels = SHAPE
    drawn: list[str] = []
    for sample in range(samples):
        cells = [(sample, pixel, channel) for channel in range(channels)]
        marks = ["@" if c == EXAMPLE else "#" if c in page.pooled else "." for c in cells]
        drawn += [*marks, " "]
    return drawn
