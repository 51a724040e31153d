"""`normlab export RUN`: a trained model as files for others."""

import argparse

from normlab.commands._help import HelpFormatter
from normlab.commands._paths import as_path
from normlab.commands._runs import say_unfinished

HELP = "write a run's model for others: weights, norms folded if asked, a torch.export program"

_EXAMPLES = """examples:
  normlab export runs/toy-bn-pre-1a2b3c4d5e/seed1 --fold
  normlab export RUN --out FOLDER
  normlab export RUN device=cpu                    a run of a GPU where there is none

model.pt holds a state dict under `model` (torch.load(..., weights_only=True)), the config, and the
names of folded norms; model.pt2 is a program for torch.export.load, of any batch and length; of
pictures it takes bytes [B, H, W, C]. A recurrent language model has none: it is a loop over tokens.
--fold puts norms with running statistics, batch norm and its kin, into the products beside them, as
SLAB and MABN do for inference. Both are written only if the outputs agree with the run's model.
"""


def main(argv: list[str]) -> int:
    """Export, and say in one line what was written."""
    parser = argparse.ArgumentParser(
        "normlab export",
        description=HELP[0].upper() + HELP[1:] + ".",
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("run", type=as_path, help="the folder of a finished run")
    parser.add_argument(
        "device", nargs="?", metavar="device=DEVICE", help="device=cpu; default: as the run"
    )
    parser.add_argument(
        "--fold", action="store_true", help="fold batch norm and its kin into the products"
    )
    parser.add_argument("--out", type=as_path, help="the folder to write to; default: RUN/export")
    arguments = parser.parse_intermixed_args(argv)

    changes = [arguments.device] if arguments.device else []
    if changes and not arguments.device.startswith("device="):
        raise ValueError(
            f"{arguments.device}: one run at a time, and device= alone of what it was told"
        )

    from normlab.export import export

    out = arguments.out or arguments.run / "export"
    found = export(arguments.run, out, fold=arguments.fold, changes=changes)
    say_unfinished(arguments.run, found.record)
    names = " and ".join(str(path) for path in found.files)
    folded = f"{len(found.folded)} norms folded, " if arguments.fold else ""
    without = f"; no program: {found.no_program}" if found.no_program else ""
    print(f"wrote {names}: {folded}outputs agree to {found.apart:.1g}{without}")
    return 0
