"""Writes the files of a new norm: a module with its formula, and its config.

Nothing here imports torch.
"""

import keyword
import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from normlab.config import folders
from normlab.config.registry import path_of
from normlab.errors import UserError
from normlab.records.manifest import write_files

_NAME = re.compile(r"[a-z][a-z0-9_]{,39}")  # part of run names
_WORDS = {"null", "true", "false", "nan", "inf", "yes", "no", "on", "off", *keyword.kwlist}

_MODULE = '''"""{title}: one sentence on what it does, and its source (authors, year, equation)."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from normlab.norms.base import Norm
from normlab.norms.moments import Axis, widen
from normlab.norms.tokens import ALL, Tokens


class {title}(Norm):
    """Divides each token by its root mean square: put the formula of the paper here."""

    # The axes (names in `Axis`) that statistics pool over; frozenset() for a norm without any.
    pools: ClassVar[frozenset[Axis]] = frozenset({{"feature"}})

    def __init__(self, dim: int, *, eps: float) -> None:
        # Each keyword is a key in the config; scale and shift say which of the two are learned.
        super().__init__(dim, scale=True, shift=True)
        self.eps = eps

    def forward(self, x: Float[Tensor, "B P D"], tokens: Tokens = ALL) -> Float[Tensor, "B P D"]:
        """Return `x` normalized; `tokens.real(x)` is true at tokens, false at padding."""
        wide, weight, bias = widen(x, self.weight, self.bias)  # float32, also under bf16
        square = wide.square().mean(-1, keepdim=True)
        return (wide * (square + self.eps).rsqrt() * weight + bias).to(x.dtype)
'''
_CONFIG = """# normlab train norm={name}
# {title}: one sentence on what it does (authors, year).
_title_: {title}
_pools_over_: feature
_target_: {module}.{title}
eps: 1.0e-5  # say what it is; annotate a new name with its range in the norm's file
"""


class NormFiles(NamedTuple):
    """The paths of a norm's module and of its config."""

    module: Path
    config: Path


def write_norm(name: str, folder: Path | None) -> NormFiles:
    """Write the module and the config of a new norm, which divides by the root mean square.

    They are written to `folder` or, if it is None, into this checkout of normlab. Returns their
    paths. Raises UserError if the name cannot be used for a norm, or if it is already taken.
    """
    if not _NAME.fullmatch(name) or name in _WORDS:
        rule = "at most 40 lowercase letters, digits and _, beginning with a letter, no keyword"
        raise UserError(
            f"{name!r:.60} cannot be the name of a norm; choose {rule} of Python or YAML"
        )
    if folder is not None:
        (folder / "norm").mkdir(parents=True, exist_ok=True)  # NORMLAB_PATH may already list it
    files = files_of_norm(name, folder)
    for path in (*files, path_of("norm", name)):  # the last path is in another folder
        if path is not None and path.exists():
            raise UserError(f"{os.path.relpath(path)} exists; choose another name")
    known = find_spec(name) if folder is not None else None
    if known is not None and known.origin is not None:  # a plain folder has no origin
        raise UserError(f"{name} is the name of another Python module; choose another name")
    title = "".join(map(str.capitalize, name.removesuffix("_norm").split("_"))) + "Norm"
    module = f"normlab.norms.{name}" if folder is None else name
    texts = (text.format(name=name, title=title, module=module) for text in (_MODULE, _CONFIG))
    write_files(dict(zip(files, texts, strict=True)))
    return files


def files_of_norm(name: str, folder: Path | None) -> NormFiles:
    """Return the paths of a norm's files in `folder` or, if it is None, in this checkout."""
    if folder is not None:
        return NormFiles(folder / f"{name}.py", folder / "norm" / f"{name}.yaml")
    module = Path(__file__).resolve().parents[2] / "norms" / f"{name}.py"
    return NormFiles(module, folders.CONFIG_DIR / "norm" / f"{name}.yaml")


def at_checkout() -> bool:
    """Return whether the current folder is the root of the checkout that this code runs from."""
    return not folders.INSTALLED and Path.cwd() == folders.CONFIG_DIR.parent
