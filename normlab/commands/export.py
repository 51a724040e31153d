"""`normlab export`: saves a trained model to a file for other tools, or creates a W&B workspace."""

import argparse

from normlab.commands._arguments import (
    add_where,
    as_path,
    as_run,
    as_text,
    command_parser,
    conditions,
)
from normlab.commands._loading import warn_if_stopped
from normlab.errors import UserError
from normlab.reports.run_paths import one_run

_EXAMPLES = """examples:
  normlab export runs/toy-bn-pre-1a2b3c4d5e/seed1 --fold
  normlab export RUN --out FOLDER
  normlab export --wandb --where task=mlm --where norm=ln,bn

model.pt holds a state dict under `model` (torch.load(..., weights_only=True)),
the config, and the names of folded norms. --fold folds norms that are fixed in
eval (batch norm, its variants, and TaperNorm) into adjacent layers. model.pt is
written only if the outputs agree.

--wandb saves a workspace that compares norms, and needs a login: `wandb login`,
or WANDB_API_KEY.
"""


def main(argv: list[str]) -> int:
    """Write the file or save the workspace, and print its location."""
    parser = command_parser("export", _EXAMPLES)
    add = parser.add_argument
    add("run", nargs="?", type=as_run, metavar="RUN", help="a finished run")
    add("--fold", action="store_true", help="fold batch norm, its variants, and TaperNorm")
    add("--out", type=as_path, metavar="FOLDER", help="folder to write to; default: RUN/export")
    add("--wandb", action="store_true", help="save a workspace at W&B instead")
    text = "with --wandb; default: the project of the wandb sink"
    add("--project", type=as_text, help=text)
    text = "with --wandb: user or team; default: the user of the login"
    add("--entity", type=as_text, help=text)
    text = "with --wandb: name of the workspace; default: normlab"
    add("--name", type=as_text, help=text)
    add_where(parser, "with --wandb: only runs with this value, or one of several; may be repeated")
    arguments = parser.parse_args(argv)
    _check(arguments)
    if arguments.wandb:
        return _workspace(arguments)
    if arguments.run is None:
        raise UserError("pass a run, such as runs/EXPERIMENT/seed1, or add --wandb")
    from normlab.training.export import export

    run = one_run(arguments.run)
    exported = export(run, arguments.out or run / "export", fold=arguments.fold)
    warn_if_stopped(run, exported.record)
    folded = f"{len(exported.folded)} norms folded, " if arguments.fold else ""
    print(f"wrote {exported.file}: {folded}outputs agree to {exported.apart:.1g}")
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Raise UserError for arguments that the model's file or the workspace would ignore."""
    of_kind = ("run", "fold", "out") if arguments.wandb else ("project", "entity", "name", "where")
    if ignored := [name for name in of_kind if getattr(arguments, name)]:
        name = "RUN" if ignored[0] == "run" else f"--{ignored[0]}"
        advice = "cannot be combined with --wandb" if arguments.wandb else "needs --wandb"
        raise UserError(f"{name} {advice}")


def _workspace(arguments: argparse.Namespace) -> int:
    """Save a workspace of the runs that match `--where`, and print its address."""
    from normlab.training.wandb_workspace import save_workspace

    name, where = arguments.name or "normlab", conditions(arguments.where)
    print(save_workspace(arguments.entity, arguments.project, name, where))
    return 0
