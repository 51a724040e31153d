"""What only reads records and lists never loads torch, nor hydra."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDS = sorted((ROOT / "normlab" / "records").glob("*.py"))
METRICS = sorted((ROOT / "normlab" / "metrics").glob("*.py"))
COMMANDS = [ROOT / "normlab" / "commands" / f"{name}.py" for name in ("compare", "list")]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in [*RECORDS, *METRICS, *COMMANDS, ROOT / "normlab" / "config" / "registry.py"]
]
HEAVY = {"torch", "hydra", "omegaconf", "datasets", "tokenizers", "wandb"}


def loaded_after(code):
    program = f"{code}\nimport sys\nprint('\\n' + ' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_importing_all_of_it_loads_nothing_heavy():
    loaded = loaded_after("import " + ", ".join(MODULES))
    assert set(MODULES) <= loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize(
    "call",
    [
        "from normlab.commands.list import main; main(['norm'])",
        "from normlab.commands.list import main; main(['runs', '--runs-dir', 'nowhere'])",
        "from normlab.commands.compare import main; main(['--runs-dir', 'nowhere'])",
    ],
)
def test_running_the_commands_loads_nothing_heavy(call):
    assert not loaded_after(call) & HEAVY
