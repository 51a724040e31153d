"""Token ids kept on a device, where padded batches are put together: nothing but sizes travels."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from normlab.data.encoded import EncodedPairs, EncodedText


@dataclass(frozen=True)
class ResidentText:
    """The ids of a text on a device, int32; what is known of its sentences stays on the host."""

    ids: Int[Tensor, " N"]
    text: EncodedText

    @classmethod
    def of(cls, text: EncodedText, device: torch.device) -> "ResidentText":
        """Copy the ids of a text to a device: 4 bytes a token."""
        return cls(torch.from_numpy(np.array(text.ids)).to(device), text)

    def counts(self, indices: np.ndarray) -> np.ndarray:
        """Tokens of some sentences without special tokens, int64 [len(indices)]."""
        return self.text.counts(indices)

    def padded(
        self,
        indices: np.ndarray,
        *,
        pad_id: int,
        prefix: int | None = None,
        suffix: int | None = None,
    ) -> Int[Tensor, "B W"]:
        """Return what `EncodedText.padded` does, made on the device without waiting for it."""
        counts = self.counts(indices)
        before, after = int(prefix is not None), int(suffix is not None)
        width = int(counts.max(initial=0)) + before + after
        sizes = torch.from_numpy(np.stack([self.text.offsets[indices], counts]))
        starts, ends = sizes.to(self.ids.device, non_blocking=True)[:, :, None]
        columns = torch.arange(-before, width - before, device=self.ids.device)
        places = (starts + columns).clamp_(0, max(len(self.ids) - 1, 0))
        inside = (columns >= 0) & (columns < ends)
        out = self.ids[places].long() if len(self.ids) else places
        out = out.masked_fill_(~inside, pad_id)
        if prefix is not None:
            out[:, 0] = prefix
        return out if suffix is None else out.masked_fill_(columns == ends, suffix)


@dataclass(frozen=True)
class ResidentPairs:
    """The two sides of a split on a device."""

    source: ResidentText
    target: ResidentText

    @classmethod
    def of(cls, pairs: EncodedPairs, device: torch.device) -> "ResidentPairs":
        """Copy both sides to a device."""
        return cls(*(ResidentText.of(side, device) for side in (pairs.source, pairs.target)))
