"""The reported instruction set and GPU agree with what torch finds."""

import os
import subprocess
import sys

import pytest
import torch

from normlab.config import machine
from normlab.config.compose import compose
from normlab.config.run_config import to_dict
from normlab.distributed.process_group import Shard
from normlab.records.record import fingerprint
from normlab.training import runtime
from normlab.training.runtime import Runtime, cpu_capabilities

AVX512 = "avx avx2 fma avx512f avx512bw avx512dq avx512vl"


@pytest.fixture
def features(monkeypatch):
    """Return a function that fakes the processor's features and hides the GPU."""
    monkeypatch.setattr(machine, "gpu", lambda: None)

    def give(text):
        monkeypatch.setattr(machine, "processor_features", lambda: frozenset(text.split()))

    return give


def test_the_reported_processor_features_match_torchs():
    found = machine.processor_features()
    for name, known in cpu_capabilities().items():
        feature = {"avx512_f": "avx512f", "avx512_bw": "avx512bw"}.get(name, name)
        if feature in ("avx2", "avx512f", "avx512bw", "avx512_bf16", "amx_bf16"):
            assert (feature in found) == known, feature


def test_a_gpu_is_reported_exactly_if_torch_finds_one():
    assert (machine.gpu() is not None) == torch.cuda.is_available()
    assert machine.settled_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    if torch.cuda.is_available():
        assert machine.gpu() == torch.cuda.get_device_capability()


@pytest.mark.parametrize(
    ("text", "name", "precision"),
    [
        (f"{AVX512} avx512_bf16 amx_bf16 amx_tile", "AMX-BF16", "bf16"),
        (f"{AVX512} avx512_bf16", "AVX512-BF16", "bf16"),
        (AVX512, "AVX512", "fp32"),
        ("avx avx2 fma", "AVX2", "fp32"),
        ("asimd sve bf16", "SVE-BF16", "fp32"),
        ("asimd", "NEON", "fp32"),
    ],
)
def test_precision_auto_is_bf16_only_on_processors_with_bf16_products(
    features, text, name, precision
):
    features(text)
    assert machine.instruction_set("cpu") == name
    assert machine.settled_precision("auto", device="auto") == precision
    assert machine.settled_precision("fp64", device="auto") == "fp64"


@pytest.mark.parametrize(("capability", "precision"), [((9, 0), "bf16"), ((7, 5), "fp32")])
def test_precision_auto_is_bf16_only_on_gpus_with_bf16_products(monkeypatch, capability, precision):
    monkeypatch.setattr(machine, "gpu", lambda: capability)
    assert machine.settled_precision("auto", device="auto") == precision
    assert machine.instruction_set("cuda") == "cuda sm_{}{}".format(*capability)


@pytest.mark.parametrize(
    ("text", "precision", "other"), [(AVX512, "fp32", "bf16"), ("avx512_bf16", "bf16", "fp32")]
)
def test_precision_auto_and_the_value_it_resolves_to_are_one_experiment(
    features, text, precision, other
):
    features(text)
    different = to_dict(compose(["task=toy", "device=cpu", f"precision={other}"]))
    settled = to_dict(compose(["task=toy", "device=cpu", "precision=auto"]))
    named = to_dict(compose(["task=toy", "device=cpu", f"precision={precision}"]))
    assert settled["precision"] == precision
    assert fingerprint(settled) == fingerprint(named) != fingerprint(different)


@pytest.mark.parametrize(
    ("given", "ranks", "asked", "threads"),
    [("3", 1, None, 3), ("1", 1, None, 1), ("1", 2, None, 4), ("3", 1, 2, 2), ("", 1, None, 8)],
)
def test_omp_num_threads_is_the_default_unless_torchrun_has_set_it(
    monkeypatch, given, ranks, asked, threads
):
    found = []
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, str(ranks))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(runtime, "world", lambda: Shard(0, ranks))
    monkeypatch.setattr(runtime, "_physical_cores", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", found.append)
    Runtime.start(device="cpu", precision="fp32", threads=asked)
    assert found == [threads]


@pytest.mark.parametrize(
    ("first", "policy"), [("", "passive"), ("sys.modules['torch'] = sys; ", None)]
)
def test_importing_normlab_stops_openmp_threads_from_spinning_or_gives_a_warning(first, policy):
    program = f"import os, sys, warnings; {first}import normlab; from normlab import openmp\n"
    program += "with warnings.catch_warnings(record=True) as told:\n"
    program += "    openmp.TOO_LATE and openmp.warn_of_spinning()\n"
    program += "print(os.environ.get('OMP_WAIT_POLICY'), len(told))"
    clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=clean, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(policy), "0" if policy else "1"]


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({"cpu.max": "100000 100000"}, 1),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "150000 100000"}, 1),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_the_usable_cores_respect_a_containers_cpu_quota(files, most, tmp_path, monkeypatch):
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: range(8), raising=False)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert machine.usable_cores(tmp_path) == (most or 8)
