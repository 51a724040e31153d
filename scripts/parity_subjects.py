"""Which of our norms is compared with which file of its authors, and how to call their code."""

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from scripts.parity_attention import HEADS, GainsByHead, Gated, HybridNorm, OneTable, Timm
from scripts.parity_flax import SingleScale
from scripts.parity_placements import GPAS, LAYERS, Siamese, keel

SHAPE = 3, 5, 8  # sequences, positions, features
STEPS = (1, 2, 3)
LENGTHS = 5, 2, 4  # lengths of the sequences if there is padding


def _plain(module: nn.Module, x: Tensor, valid: Tensor) -> Tensor:
    return module(x)


def _untold(module: nn.Module, step: int) -> None:
    """Begin a step; the module does not need to know its number."""


def _free(module: nn.Module) -> Tensor | None:
    return None


@dataclass(frozen=True)
class Driver:
    """How to call a module, set the number of its next step, and get its penalty on the loss."""

    forward: Callable[[Any, Tensor, Tensor], Tensor] = _plain
    begin: Callable[[Any, int], None] = _untold
    penalty: Callable[[Any], Tensor | None] = _free


@dataclass(frozen=True)
class Subject:
    """One of our norms and the file of its authors that it is compared with.

    `build` creates the authors' module from their file; `option` and `values` describe our norm.
    `names` and `tables` map our parameters and statistics to theirs. `factors` has the ratio of
    their value to ours, by name, for constants that are known to differ. The input of the step
    `outlier` is ten times as large. `around` says what our norm is part of: a linear layer with
    centered rows (its parts are `linear` and `norm`), a self-attention of two heads with the
    settings `values`, only these heads, with `option` as `qk_norm`, an encoder layer with `option`
    as its placement, or a placement's residuals around linear layers, with the norm and the number
    of layers in `values`. `absent` lists modules that their file imports but does not use here.
    """

    repository: str
    commit: str
    path: str
    build: Callable[[Any], nn.Module]
    option: str
    values: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    driver: Driver = Driver()
    steps: tuple[int, ...] = STEPS
    padded: bool = False
    outlier: int | None = None
    factors: Mapping[str, float] = field(default_factory=dict)
    tolerance: float = 1e-12
    around: Literal["nothing", "centered product", "attention", "heads", "layer", "residuals"] = (
        "nothing"
    )
    absent: tuple[str, ...] = ()


def _lancopku(eps: float = 1e-5, **changes: Any) -> Callable[[Any], nn.Module]:
    settings = {
        "lnv": "nowb",
        "sigma": 0.0,
        "adanorm_scale": 1.0,
        "nowb_scale": 1.0,
        "mean_detach": False,
        "std_detach": False,
    }
    arguments = types.SimpleNamespace(**{**settings, **changes})
    return lambda module: module.LayerNormImpl(
        arguments, SHAPE[2], eps=eps, elementwise_affine=False
    )


class _Gradient(nn.Module):
    """Layer norm's gradient alone: the authors' output minus the normalized tokens it contains."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.both = _lancopku(eps=0.0, lnv="gradnorm")(module)
        self.normalized = _lancopku(eps=0.0)(module)

    def forward(self, x: Tensor) -> Tensor:
        return self.both(x) - self.normalized(x).detach()


_ADANORM: Mapping[str, Any] = {
    "repository": "lancopku+AdaNorm",
    "commit": "546faea0c3297061d743482d690ccd7d51f1ac38",
    "path": "machine translation/fairseq/modules/layer_norm.py",
}
_RMSNORM: Mapping[str, Any] = {
    "repository": "bzhangGo+rmsnorm",
    "commit": "2e726f1a3f106bb719056422f4f9b6aca03d3ce6",
    "path": "rmsnorm_torch.py",
    "names": {"weight": "scale"},
}
_DYT: Mapping[str, Any] = {
    "repository": "jiachenzhu+DyT",
    "commit": "aab5dde0bc1bdd4410f687dad404c87b31808f90",
}
_DERF: Mapping[str, Any] = {
    "repository": "zlab-princeton+Derf",
    "commit": "8dd9ea3",
    "absent": ("timm.layers",),
}
_BOUNDED = {"weight": "weight", "bias": "bias", "alpha": "alpha", "shift": "shift"}
_AFFINE = {"weight": "weight", "bias": "bias"}


def _time_first(module: nn.Module, x: Tensor, valid: Tensor) -> Tensor:
    return module(x.transpose(0, 1), pad_mask=~valid).transpose(0, 1)


_POWERNORM: Mapping[str, Any] = {
    "repository": "sIncerass+powernorm",
    "commit": "9ea6226a3203d5d6fcee07a5c6dec38ec6bc5e9f",
    "names": _AFFINE,
}


def _power(groups: int, *, padded: bool) -> Subject:
    """Return PowerNorm, traced past the end of a warm-up of six steps."""
    return Subject(
        **_POWERNORM,
        path="fairseq/modules/norms/mask_powernorm.py",
        build=lambda module: module.MaskPowerNorm(SHAPE[2], warmup_iters=6, group_num=groups),
        option="pn",
        values={"groups": groups, "padding": "forward", "warmup_steps": 6},
        tables={"running_square": "running_phi", "gradient_moment": "ema_gz"},
        driver=Driver(forward=_time_first),
        steps=tuple(range(1, 16)),
        padded=padded,
    )


def _root_batch(*, padded: bool) -> Subject:
    """Return the batch norm in PowerNorm's repository."""
    return Subject(
        **_POWERNORM,
        path="fairseq/modules/norms/mask_syncbatchnorm.py",
        build=lambda module: module.MaskSyncBatchNorm(SHAPE[2]),
        option="bn_rms",
        values={"padding": "fill"},
        tables={"running_mean": "running_mean", "running_var": "running_var"},
        driver=Driver(forward=_time_first),
        steps=tuple(range(1, 11)),
        padded=padded,
    )


def _regularized(penalty: str, mean: float, var: float, *, padded: bool = True) -> Subject:
    return Subject(
        repository="wjxts+RegularizedBN",
        commit="57a5394505b122ccafb2b8914bd926cc2241e03c",
        path="fairseq/modules/norm/mask_batchnorm3d.py",
        build=lambda module: module.MaskBatchNorm3d(
            SHAPE[2], penalty_type=penalty, penalty_mean=mean, penalty_var=var
        ),
        option="rbn",
        values={"penalty": penalty, "penalty_mean": mean, "penalty_var": var},
        names=_AFFINE,
        tables={"running_mean": "running_mean", "running_var": "running_var"},
        driver=Driver(forward=_time_first, penalty=lambda module: module.loss()),
        steps=tuple(range(1, 11)),
        padded=padded,
        tolerance=1e-10,
    )


class _EachPosition(nn.Module):
    """Batch norm with statistics per position; the authors' module is called once per position."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.norm = module.SeparatedBatchNorm1d(SHAPE[2], SHAPE[1])

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.norm(rows, time) for time, rows in enumerate(x.unbind(1))], 1)

    def get_buffer(self, target: str) -> Tensor:
        return torch.stack([self.norm.get_buffer(f"{target}_{time}") for time in range(SHAPE[1])])


def _counted(name: str) -> Callable[[Any, int], None]:
    """Return a function that sets a counter of batches before a step."""
    return lambda module, step: getattr(module, name).fill_(step - 1)


def _renorm(*, padded: bool) -> Subject:
    """Return batch renormalization along its schedule, which the authors give in steps."""
    return Subject(
        repository="ludvb+batchrenorm",
        commit="143076f952f0861bbf8af55833d046e10ffaa99b",
        path="batchrenorm/batchrenorm.py",
        build=lambda module: module.BatchRenorm1d(SHAPE[2]),
        option="brn",
        values={"warmup_steps": 40_000},
        names=_AFFINE,
        tables={"running_mean": "running_mean", "running_std": "running_std"},
        driver=Driver(
            forward=lambda module, x, valid: module(
                x.transpose(1, 2), ~valid if padded else None
            ).transpose(1, 2),
            begin=_counted("num_batches_tracked"),
        ),
        steps=(1, 2, 5000, 5001, 5002, 6000, 9000, 15000, 25000, 25001, 30000, 40000, 40001, 50000),
        padded=padded,
        tolerance=1e-10,
    )


_WINDOW: Mapping[str, Any] = {
    "steps": tuple(range(991, 1011)),  # the warm-up ends at 999, the correction begins at 1001
    "tolerance": 1e-10,
}
_WINDOWED = {"window": 3, "warmup_steps": 999, "correction_steps": 1000}
_WINDOW_TABLES = {
    "running_square": "running_var",
    "squares": "buffer_x2",
    "gradient_moments": "buffer_gz",
}


def _unified(*, outliers: bool, padded: bool) -> Subject:
    return Subject(
        **_WINDOW,
        repository="hikvision-research+Unified-Normalization",
        commit="0ce9bf26837f94c58ae5dd0d206ad3aa32d82d07",
        path="image_classification/models/unified_normalization/unified_normalization.py",
        build=lambda module: module.UN1d(
            SHAPE[2], window_size=3, warmup_iters=1000, outlier_filtration=outliers
        ),
        option="un",
        values={**_WINDOWED, "filter": outliers, "padding": "forward"},
        names=_AFFINE,
        tables={**_WINDOW_TABLES, "gradient_moment": "ema_gz"},
        driver=Driver(forward=lambda module, x, valid: module(x, ~valid), begin=_counted("iters")),
        outlier=1005,
        padded=padded,
    )


def _channels_first(module: nn.Module, x: Tensor, valid: Tensor) -> Tensor:
    return module(x.transpose(1, 2)[..., None])[..., 0].transpose(1, 2)


_MABN: Mapping[str, Any] = {
    **_WINDOW,
    "repository": "megvii-model+MABN",
    "commit": "995e8f5af82ced88394166a322766a5378ece969",
    "path": "MABN.py",
    "option": "mabn",
    "driver": Driver(forward=_channels_first, begin=_counted("iters")),
}


class _CenteredConvolution(nn.Module):
    """A linear layer with centered rows before MABN, as in the authors' code."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.conv = module.CenConv2d(SHAPE[2], SHAPE[2], kernel_size=1, bias=True)
        self.norm = module.MABN2d(SHAPE[2], 1, 3, warmup_iters=1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))

    @property
    def iters(self) -> Tensor:
        return self.norm.iters


def _represented(*, progressive: bool, padded: bool = False) -> Subject:
    """Return RepBN, or PRepBN's way there: two steps of layer norm, then four of blending.

    The authors' code has no padding mask, so padding counts as tokens.
    """
    inner = "norm2." if progressive else ""
    names = {"weight": "bn.weight", "bias": "bn.bias", "alpha": "alpha"}
    names = {ours: f"{inner}{theirs}" for ours, theirs in names.items()}
    tables = {name: f"{inner}bn.{name}" for name in ("running_mean", "running_var")}
    tokens = {"token_weight": "norm1.weight", "token_bias": "norm1.bias"}

    def build(module: Any) -> nn.Module:
        if not progressive:
            return module.RepBN(SHAPE[2])
        return module.LinearNorm(SHAPE[2], nn.LayerNorm, module.RepBN, warm=2, step=4)

    return Subject(
        repository="xinghaochen+SLAB",
        commit="f58db00b9db3959b5de03986f454aa5ff064279a",
        path="classification/models/prepbn.py",
        build=build,
        option="prepbn" if progressive else "repbn",
        values={
            **({"warmup_steps": 2, "blend_steps": 4} if progressive else {}),
            **({"padding": "include"} if padded else {}),
        },
        names={**names, **tokens} if progressive else names,
        tables=tables,
        steps=tuple(range(1, 11)),
        padded=padded,
        tolerance=1e-10,
    )


HIDDEN = 12  # width of a layer's feed-forward part


def _projections(into: str, out: str) -> dict[str, str]:
    """Return the other code's names for an attention's projections, keyed by our names."""
    return {
        f"{ours}.{name}": f"{theirs}.{name}"
        for ours, theirs in (("qkv_proj", into), ("out_proj", out))
        for name in ("weight", "bias")
    }


_WITH_VALID = Driver(forward=lambda module, x, valid: module(x, valid))


def _hybrid(option: str, normalized: str) -> Subject:
    """Return HybridNorm's norms on queries, keys and, in its method, values."""
    return Subject(
        repository="BryceZhuo+HybridNorm",
        commit="f0dd605",
        path="dense_model/olmo/model.py",
        build=lambda module: HybridNorm(module, SHAPE[2], values="v" in normalized),
        option=option,
        names={
            **_projections("block.att_proj", "block.attn_out"),
            **{f"{h}_norm.norm.weight": f"block.{h}_norm.weight" for h in normalized},
        },
        driver=_WITH_VALID,
        padded=True,
        around="attention",
        absent=(
            *(".aliases", ".beam_search", ".config", ".exceptions"),
            *(".initialization", ".torch_util"),
        ),
    )


def _linears(*theirs: str) -> dict[str, str]:
    """Return the authors' names of the residuals' linear layers by ours, in order."""
    return {
        f"linears.{number}.{part}": f"{name}.{part}"
        for number, name in enumerate(theirs)
        for part in ("weight", "bias")
    }


def _siamese() -> dict[str, str]:
    """Return the authors' names of the parameters of two SiameseNorm layers by ours."""
    ends = {"norm": "final_norm", "x_norm": "pre_norm", "y_norm": "post_norm"}
    names = {f"final.{ours}": theirs for ours, theirs in ends.items()}
    for number in range(2 * LAYERS):
        block, site = f"blocks.{number // 2}", number % 2 + 1
        kinds = {"norm": "input_norm", "x_norm": "post_norm", "y_norm": "pre_norm"}
        names |= {f"residuals.{number}.{o}": f"{block}.{t}{site}" for o, t in kinds.items()}
    parts = ("weight", "bias")
    names = {
        f"{ours}.{part}": f"{theirs}.{part}" for ours, theirs in names.items() for part in parts
    }
    blocks = range(LAYERS)
    return names | _linears(*(f"blocks.{n}.{part}" for n in blocks for part in ("attn", "mlp")))


# Their standard deviation divides by n - 1, ours by n; eps, which is in a different place, is 0.
_CORRECTION = ((SHAPE[2] - 1) / SHAPE[2]) ** 0.5
_DETACHED = {"affine": False, "eps": 0.0}

SUBJECTS: Mapping[str, Subject] = {
    "ada": Subject(**_ADANORM, build=_lancopku(lnv="adanorm"), option="ada"),
    "ada_2": Subject(
        **_ADANORM,
        build=_lancopku(lnv="adanorm", adanorm_scale=2.0),
        option="ada",
        values={"scale": 2.0},
    ),
    **{
        f"ln_detach_{detach}": Subject(
            **_ADANORM,
            build=_lancopku(eps=0.0, mean_detach=detach != "std", std_detach=detach != "mean"),
            option="ln",
            values={**_DETACHED, "detach": detach},
            factors={"y": _CORRECTION, "dx": _CORRECTION},
        )
        for detach in ("mean", "std", "both")
    },
    "ln_detach_value": Subject(
        **_ADANORM,
        build=_Gradient,
        option="ln",
        values={**_DETACHED, "detach": "value"},
        factors={"dx": _CORRECTION},
    ),
    **{
        f"gn_scaling_{groups}": Subject(
            repository="wjxts+RegularizedBN",
            commit="57a5394",
            path="fairseq/modules/norm/mask_groupscale.py",
            build=lambda module, groups=groups: module.MaskGroupScale(SHAPE[2], group_num=groups),
            option="gn",
            values={"groups": groups, "center": False, "affine": False},
            driver=Driver(forward=_time_first),
            padded=groups == 2,
        )
        for groups in (2, 8)
    },
    "rms": Subject(
        **_RMSNORM,
        build=lambda module: module.RMSNorm(SHAPE[2]),
        option="rms",
        values={"eps": 1e-8, "eps_inside": False},
    ),
    "ssnorm": Subject(
        repository="dmis-lab+Outlier-Safe-Pre-Training",
        commit="4c2c367",
        path="example_modeling_flax.py",
        build=lambda module: SingleScale(module, SHAPE[2]),
        option="ssnorm",
        names={"weight": "scale"},
        absent=(
            "chex",
            *(
                f"jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_{name}"
                for name in ("kernel", "mask")
            ),
        ),
    ),
    "prms": Subject(
        **_RMSNORM,
        build=lambda module: module.RMSNorm(SHAPE[2], p=0.25),
        option="prms",
        values={"share": 0.25},
    ),
    "pn": _power(1, padded=False),
    "pn_padded": _power(1, padded=True),
    "pn_groups": _power(4, padded=False),
    "pn_groups_padded": _power(4, padded=True),
    "bn_position": Subject(
        repository="jihunchoi+recurrent-batch-normalization-pytorch",
        commit="61736ec",
        path="bnlstm.py",
        build=_EachPosition,
        option="bn_position",
        values={"num_positions": SHAPE[1]},
        names={"weight": "norm.weight", "bias": "norm.bias"},
        tables={name: name for name in ("running_mean", "running_var")},
        steps=tuple(range(1, 11)),
        tolerance=1e-10,
    ),
    "bn_rms": _root_batch(padded=True),
    "bn_rms_dense": _root_batch(padded=False),
    "rbn_diff": _regularized("diff", 0.1, 0.01),
    "rbn_dense": _regularized("diff", 0.1, 0.01, padded=False),
    **{
        f"rbn_{penalty}": _regularized(penalty, 0.3, 0.2)
        for penalty in ("reldiff", "mag", "reldiffnorm", "reldiffcosine", "symkl")
    },
    "rbn_diff2": _regularized("diff2", 60.0, 0.5),
    "brn": _renorm(padded=False),
    "brn_padded": _renorm(padded=True),
    "repbn": _represented(progressive=False),
    "repbn_padded": _represented(progressive=False, padded=True),
    "prepbn": _represented(progressive=True),
    "prepbn_padded": _represented(progressive=True, padded=True),
    "mabn": Subject(
        **_MABN,
        names=_AFFINE,
        build=lambda module: module.MABN2d(SHAPE[2], 1, 3, warmup_iters=1000),
        values=_WINDOWED,
        tables=_WINDOW_TABLES,
    ),
    "mabn_centered": Subject(
        **_MABN,
        build=_CenteredConvolution,
        values=_WINDOWED,
        names={
            "linear.weight": "conv.weight",
            "linear.bias": "conv.bias",
            "norm.weight": "norm.weight",
            "norm.bias": "norm.bias",
        },
        tables={f"norm.{ours}": f"norm.{theirs}" for ours, theirs in _WINDOW_TABLES.items()},
        around="centered product",
    ),
    "un": _unified(outliers=False, padded=True),
    "un_dense": _unified(outliers=False, padded=False),
    "un_outliers": _unified(outliers=True, padded=False),
    "un_outliers_padded": _unified(outliers=True, padded=True),
    "qk_l2": Subject(
        repository="CyndxAI+QKNorm",
        commit="c628cb5",
        path="QKNorm/layers.py",
        build=lambda module: OneTable(module, SHAPE[2], SHAPE[1]),
        option="l2",
        names={
            "qkv_proj.weight": "in_weights",
            "qkv_proj.bias": "in_biases",
            "out_proj.weight": "out_weights",
            "out_proj.bias": "out_biases",
            "q_norm.norm.gain": "attention.mha_scale.scale",
        },
        driver=_WITH_VALID,
        padded=True,
        around="attention",
    ),
    "qk_ln": Subject(
        repository="huggingface+pytorch-image-models",
        commit="aa4b585",
        path="timm/layers/attention.py",
        build=lambda module: Timm(module, SHAPE[2]),
        option="ln",
        names={
            **_projections("attention.qkv", "attention.proj"),
            **{
                f"{head}_norm.norm.{name}": f"attention.{head}_norm.{name}"
                for head in ("q", "k")
                for name in ("weight", "bias")
            },
        },
        driver=_WITH_VALID,
        padded=True,
        tolerance=1e-10,  # nearly equal weight rows leave a variance that is too small to divide by
        around="attention",
        absent=("._fx", ".config", ".pos_embed_sincos"),
    ),
    **{
        f"gate_{kind}": Subject(
            repository="qiuzh20+gated_attention",
            commit="49645df",
            path="modeling_qwen3.py",
            build=lambda module, kind=kind: Gated(module, SHAPE[2], kind),
            option="none",
            values={"gate": kind},
            names={
                **_projections("qkv", "out"),
                **{f"gate.{name}": f"gate.{name}" for name in ("weight", "bias")},
            },
            driver=_WITH_VALID,
            padded=True,
            around="attention",
            absent=(
                ".configuration_qwen3",
                *(
                    f"transformers{name}"
                    for name in (
                        *("", ".activations", ".cache_utils", ".generation", ".utils"),
                        *(".modeling_attn_mask_utils", ".modeling_outputs"),
                        *(
                            ".modeling_rope_utils",
                            ".modeling_utils",
                            ".modeling_flash_attention_utils",
                        ),
                    )
                ),
            ),
        )
        for kind in ("headwise", "elementwise")
    },
    "qk_rms": _hybrid("rms", "qk"),
    "qkv_rms": _hybrid("qkv", "qkv"),
    "qk_rms_heads": Subject(
        repository="lucidrains+x-transformers",
        commit="9252ed7",
        path="x_transformers/x_transformers.py",
        build=lambda module: GainsByHead(module, SHAPE[2]),
        option="rms_heads",
        values={"eps": 0.0},
        names={"norm.gains": "gains"},
        driver=_WITH_VALID,
        around="heads",
        absent=(
            *("einx", "loguru", "einops", "einops.layers", "einops.layers.torch"),
            *("torch_einops_utils", "torch_einops_utils.nn"),
            *("x_transformers.attend", "x_transformers.autoregressive_wrapper"),
        ),
    ),
    "rezero": Subject(
        repository="majumderb+rezero",
        commit="e2c94a8",
        path="rezero/transformer/rztx.py",
        build=lambda module: module.RZTXEncoderLayer(SHAPE[2], HEADS, HIDDEN, dropout=0.0),
        option="rezero",
        names={
            "self_attention.qkv_proj.weight": "self_attn.in_proj_weight",
            "self_attention.qkv_proj.bias": "self_attn.in_proj_bias",
            "self_attention.out_proj.weight": "self_attn.out_proj.weight",
            "self_attention.out_proj.bias": "self_attn.out_proj.bias",
            "feed_forward.fc1.weight": "linear1.weight",
            "feed_forward.fc1.bias": "linear1.bias",
            "feed_forward.fc2.weight": "linear2.weight",
            "feed_forward.fc2.bias": "linear2.bias",
            "self_residual.gain": "resweight",
        },
        driver=Driver(
            forward=lambda module, x, valid: module(
                x.transpose(0, 1), src_key_padding_mask=~valid
            ).transpose(0, 1)
        ),
        padded=True,
        tolerance=1e-9,  # weights near 1 give outputs in the thousands, and a sharp softmax
        around="layer",
    ),
    "gpas": Subject(
        repository="dandingsky+GPAS",
        commit="3198068",
        path="peft_pretraining/modeling_llama.py",
        build=lambda module: GPAS(module, SHAPE[2]),
        option="gpas",
        values={"norm": "rms", "layers": 1},
        names={
            "residuals.0.gate": "layer.gpas_block.gate",
            "residuals.0.norm.weight": "layer.input_layernorm.weight",
            "residuals.1.norm.weight": "layer.post_attention_layernorm.weight",
            "final.weight": "norm.weight",
            **_linears("layer.self_attn.linear", "layer.mlp"),
        },
        around="residuals",
        absent=(
            *("transformers.activations", "transformers.modeling_outputs", "peft_pretraining"),
            *("transformers.modeling_utils", "transformers.utils"),
            "transformers.models.llama.configuration_llama",
        ),
    ),
    "keel": Subject(
        repository="lucidrains+vit-pytorch",
        commit="69d24fe",
        path="vit_pytorch/vit_with_keel_post_ln.py",
        build=lambda module: keel(module, SHAPE[2]),
        option="keel",
        values={"norm": "ln", "layers": LAYERS},
        names={
            **{f"residuals.{n}.norm.weight": f"layers.{n}.net.0.weight" for n in range(4)},
            **{f"residuals.{n + 1}.out_norm.weight": f"post_norms.{n}.weight" for n in range(3)},
            **_linears(*(f"layers.{n}.net.1" for n in range(4))),
        },
        around="residuals",
        absent=("einops", "einops.layers.torch"),
    ),
    "siamese": Subject(
        repository="Qwen-Applications+SiameseNorm",
        commit="70efa00",
        path="deit-model-siamesenorm.py",
        build=lambda module: Siamese(module, SHAPE[2]),
        option="siamese",
        values={"norm": "ln", "layers": LAYERS},
        names=_siamese(),
        around="residuals",
        absent=("timm.data", "timm.models.helpers", "timm.models.layers", "timm.models.registry"),
    ),
    "scale": Subject(
        repository="tnq177+transformers_without_tears",
        commit="c2dfaaa93c2437a75f08b52de88b1132f78e7cad",
        path="layers.py",
        build=lambda module: module.ScaleNorm(SHAPE[2] ** 0.5),
        option="scale",
        names={"gain": "scale"},
    ),
    "dyt": Subject(
        **_DYT,
        path="dynamic_tanh.py",
        build=lambda module: module.DynamicTanh(SHAPE[2], channels_last=True),
        option="dyt",
        absent=("timm.layers",),
        names={name: _BOUNDED[name] for name in ("weight", "bias", "alpha")},
    ),
    "dyt_scale": Subject(
        **_DYT,
        path="other_tasks/LLaMA/fms_fsdp/models/llama.py",
        build=lambda module: module.LayerNormParameterized(SHAPE[2], 0.5),
        option="dyt",
        values={"affine": "scale"},
        names={name: _BOUNDED[name] for name in ("weight", "alpha")},
        absent=(
            *("fms.distributed.strategy", "fms.modules.attention", "fms.modules.embedding"),
            *("fms.modules.feedforward", "fms.modules.positions", "fms.utils.activation"),
            "fms.utils.config",
        ),
    ),
    "bhyt": Subject(
        repository="MLAI-Yonsei+BHyT",
        commit="e170c9b",
        path="models/hf_src/llama/modeling_llama.py",
        build=lambda module: module.BHyT_Star(SHAPE[2], learnable_lam=True, inv_kappa=2.0),
        option="bhyt",
        values={"kappa": 0.5},
        names={"weight": "weight", "lam": "lam"},
        tolerance=1e-6,  # they compute the mean square in float32
        absent=(
            ".configuration_llama",
            *(
                f"transformers{name}"
                for name in (
                    *("", ".activations", ".cache_utils", ".generation", ".integrations"),
                    *(".integrations.flex_attention", ".modeling_attn_mask_utils"),
                    *(".modeling_flash_attention_utils", ".modeling_outputs"),
                    *(".modeling_rope_utils", ".modeling_utils", ".processing_utils"),
                    *(".pytorch_utils", ".utils", ".utils.deprecation"),
                )
            ),
        ),
    ),
    "derf": Subject(
        **_DERF,
        path="ViT/dynamic_erf.py",
        build=lambda module: module.Dynamic_erf(SHAPE[2], channels_last=True),
        option="derf",
        names=_BOUNDED,
    ),
    **{
        function: Subject(
            **_DERF,
            path=f"ViT/other_functions/{function}.py",
            build=lambda module, name=function: getattr(module, name.capitalize())(
                SHAPE[2], channels_last=True
            ),
            option="derf",
            values={"function": function},
            names=_BOUNDED,
        )
        for function in (
            *("arctan", "isru", "satursin", "expsign"),
            *("smoothsign", "relsign", "cubsign", "linear_clip"),
        )
    },
}
