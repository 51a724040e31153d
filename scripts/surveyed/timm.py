"""One small model of each family of timm, on four images of 64 pixels."""

import re
from collections.abc import Mapping

import timm
import torch
from timm.models import list_modules
from torch import Tensor, nn

from normlab.errors import UserError
from surveyed import Subject

KIND = (
    "families, each represented by its smallest model, on four images of 64 pixels (or the only "
    "size that it accepts); NaFlexVit gets images with different numbers of patches, and their "
    "mask. The question is whether an image's output depends on the other images, and what "
    "norms pool over"
)
CHECKED = """\
- `starnet_s1` was wrongly reported for stale statistics: its variance is below eps, which normlab
  now adds to both variances. `repghostnet_050`, `hardcorenas_a`: correct for these inputs. Deep
  in the model an image of 64 pixels has 1 or 4 positions, so in training the variance of four
  images is biased by a quarter, which adds up over the layers.
- `regnety_040_sgn`: correct; its configuration makes its `bn` a group norm."""
SMALL = "test_ atto femto pico nano zepto xx_small xxs _xs xs_ tiny _t_ mini small _s lite 0_5 050"
SMALL += " b0 18 a0 n0 l0 d0"
PIXELS, PARAMETERS = 64, 30e6
FLEX = "NaFlexVit"


def classes() -> list[str]:
    """Return the names of the smallest models."""
    return [
        smallest(family) for family in sorted(list_modules()) if timm.list_models(module=family)
    ] + [FLEX]


def smallest(family: str) -> str:
    """Return the model of a family whose name suggests the fewest parameters."""
    return min(timm.list_models(module=family), key=lambda name: (rank(name), len(name), name))


def rank(name: str) -> int:
    """Return a low number for a name that suggests a small model."""
    words = SMALL.split()
    return next((n for n, word in enumerate(words) if word in name), len(words))


class Patches(nn.Module):
    """A NaFlexVit called with its three inputs by name."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, patches: Tensor, patch_coord: Tensor, patch_valid: Tensor) -> Tensor:
        return self.model(patches, patch_coord=patch_coord, patch_valid=patch_valid)


def flexible() -> Subject:
    """Return a NaFlexVit with rows of different numbers of patches, and the mask of real ones."""
    model = timm.create_model(
        "naflexvit_base_patch16_gap", embed_dim=48, depth=2, num_heads=4, num_classes=10
    )
    valid = torch.arange(24) < torch.tensor([24, 16, 12, 8])[:, None]
    places = torch.stack([torch.arange(24) // 4, torch.arange(24) % 4], -1).expand(4, -1, -1)
    patches = torch.randn(4, 24, 16 * 16 * 3) * valid[..., None]
    batch = {"patches": patches, "patch_coord": places * valid[..., None], "patch_valid": valid}
    return Subject(Patches(model), [batch], {"mask": "patch_valid"})


def subject(name: str) -> Subject:
    """Return a model and four images. Raise UserError if it cannot take them."""
    torch.manual_seed(0)
    if name == FLEX:
        return flexible()
    reasons = []
    for extra in ({"img_size": PIXELS, "num_classes": 10}, {"num_classes": 10}):
        try:
            with torch.device("meta"):
                size = sum(p.numel() for p in timm.create_model(name, **extra).parameters())
            if size > PARAMETERS:
                raise UserError(f"{size / 1e6:.0f} M parameters")
            model = timm.create_model(name, **extra).eval()
        except UserError:
            raise
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {error}")
            continue
        config: Mapping = model.pretrained_cfg
        channels = config.get("input_size", (3, 224, 224))[0]
        for pixels in (PIXELS, config.get("input_size", (3, 224, 224))[-1]):
            images = torch.randn(4, channels, pixels, pixels)
            try:
                with torch.no_grad():
                    model(images)
                return Subject(model, [images])
            except Exception as error:
                reasons.append(f"{type(error).__name__}: {re.sub(chr(10), ' ', str(error))[:100]}")
    raise UserError(f"no input fits: {reasons[0] if reasons else ''}")
