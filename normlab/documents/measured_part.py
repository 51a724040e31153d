"""What was found on a part, in Chinese and English: what the number is, its sides, its reason.

A number is written once, as the ledger has it, because it reads the same in both languages; only
the words around it differ.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from normlab.claims.decision import CONSTANT, OPEN, SEEN, SHOWN
from normlab.claims.endpoint import NOT_ALL
from normlab.claims.ledger import NOT_SURVIVED
from normlab.claims.side import SideValue, sides_text
from normlab.documents.language import Locale

SCORES = {
    "bleu": ("BLEU", "BLEU"),
    "bleu_tok": ("BLEU", "BLEU"),
    "loss": ("损失（奈特）", "loss (nats)"),
    "accuracy": ("准确率", "accuracy"),
    "mlm_accuracy": ("掩码准确率", "masked-token accuracy"),
    "nsp_accuracy": ("句对准确率", "sentence-pair accuracy"),
    "steps_to": ("达到该值的步数", "updates to get there"),
    "steps_to_converge": ("收敛步数", "updates to converge"),
    "attention/saturated": ("饱和行的比例", "share of saturated rows"),
    "branches/crest": ("子层输出的峰值因子", "crest factor of a sub-layer"),
    "drift/mean": ("均值的漂移", "drift of the mean"),
    "gradients/norm": ("梯度范数", "norm of the gradient"),
    "gradients/spread": ("各层梯度的最大最小比", "largest over smallest gradient"),
    "independence/distance": ("批均值偏离移动平均的平方", "squared distance from the running mean"),
    "independence/effect": ("均值方差的膨胀", "inflation of the mean's variance"),
    "independence/gradient": ("梯度的膨胀", "inflation of the gradient"),
    "independence/position": ("同位置的相关", "correlation at a position"),
    "length_change/loss_jump": ("损失的跳升（奈特）", "jump of the loss (nats)"),
    "length_change/recovery": ("恢复所需步数", "updates to recover"),
    "length_change/tid_after": ("均值偏离的增加", "rise of the mean's distance"),
    "residual/growth": ("残差流的增长倍数", "growth of the residual stream"),
    "spikes/count": ("损失尖峰数", "loss spikes"),
    "tid/mean": ("批均值与移动平均的距离", "distance from the running mean"),
}
"""What a score or a probe's metric is, in Chinese and English, with its unit if it has one."""
_UNITS = {
    "value": ("", "{}"),
    "difference": ("之差", "difference in {}"),
    "interaction": ("差距之差", "difference of differences in {}"),
    "factor": ("之比", "ratio of {}"),
    "spread": ("的标准差之比", "ratio of the standard deviations of {}"),
}
_TIME = ("节省的时间", "time saved")
_TRAINED = ("训练成功的种子数：", "seeds that train:")
_REASONS = {
    SHOWN: "能确定有差别，不能确定是否超出界限",
    CONSTANT: "各种子的差完全相同，算不出置信区间，无法判定",
    OPEN: "训练成功的种子数不足以判定",
    SEEN: "定下检验标准时已看过这些训练，要用新的训练来判定",
    NOT_SURVIVED: "与同一研究的其他检验一起校正后不再显著",
    NOT_ALL: "并非每个种子都训练成功",
    "more seeds would not change that, a longer or larger run might": (
        "增加种子也不能判定，训练更久或模型更大也许可以"
    ),
}
"""The reasons why a part is open, in Chinese."""
_PATTERNS = {
    r"these (?:seeds|rounds) would have shown (?:a factor )?(\S+) \(80 % power\)": (
        r"差别达到 \1 时，这些种子有 80 % 的把握发现"
    ),
    r"([^;]*): \S*/(\S+) (\S+) is not clearly better than the untrained baseline "
    r"\((\S+?)(?:; [^)]*)?\)": (r"\1 的 \2 为 \3，并不明显好于未训练的基线（\4）"),
    r"no seed of the reference trains": "对照没有一个种子训练成功",
}


class MeasuredPart(NamedTuple):
    """What was found on a part: its value, the values behind it, and why it is open.

    `name` says what the number is; it and `reason` are in Chinese and English. Between `limits`,
    such as ±0.5 or 0.8–1.25, the number shows no difference, and `inside` says whether it does.
    """

    name: tuple[str, str]
    value: str
    sides: tuple[SideValue, ...]
    limits: str
    inside: bool
    reason: tuple[str, str]

    def text(self, language: Locale) -> str:
        """Return it in one line."""
        zh = language.code == "zh"
        value, sides = self.value, sides_text(self.sides, chinese=zh)
        if value and sides:
            value += sides.join(language.ends)
        number = f"{self.name[not zh]} {value or sides}" if value or sides else ""
        margin = language.inside if self.inside else language.margin
        limits = margin.format(limits=self.limits) if self.limits else ""
        number = re.sub("(?<=[：）]) ", "", number)
        return language.between.join(filter(None, (number, limits, self.reason[not zh])))


def measured_part(part: Mapping[str, Any]) -> MeasuredPart | None:
    """Return what runs or timings found on a part of the ledger; None if they found nothing."""
    unit, shown = part.get("unit", "value"), part.get("shown", "")
    sides, reason = tuple(map(_side, part.get("sides", ()))), part.get("reason", "")
    if not shown and not sides and not reason:
        return None
    if part.get("counted"):
        name = _TRAINED
    elif unit == "time saved":
        name = _TIME
        if "low" in part:
            shown = "{value:.1%} [{low:.1%}, {high:.1%}]".format(**part)
    else:
        name, shown = (
            _name(part["scores"][0], unit if shown else "value"),
            shown.removeprefix("factor "),
        )
    limits = _limits(part["limits"], unit) if "limits" in part and "low" in part else ""
    if not re.search("[1-9]", shown):  # rounding
        shown = re.sub(r"-?0\.0+", "0", shown)
    inside = part["verdict"] == "no difference"
    return MeasuredPart(name, shown, sides, limits, inside, (_reason_in_chinese(reason), reason))


def score_name(score: str) -> tuple[str, str]:
    """Return what a score is, in Chinese and English; KeyError if it has no name yet."""
    parts = score.split("/")
    probe = parts[0] == "stability"
    if probe:
        return SCORES["/".join(parts[1:3])]
    return SCORES["steps_to" if "steps_to" in parts else parts[-1]]


def _side(side: Mapping[str, Any]) -> SideValue:
    place = tuple(side["place"]) if "place" in side else None
    return SideValue(tuple(side["name"]), side["value"], side.get("least"), place)


def _name(score: str, unit: str) -> tuple[str, str]:
    zh, en = score_name(score)
    of_zh, of_en = _UNITS[unit]
    name, bracket, measure = zh.partition("（")
    gap = " " if of_zh and name[-1].isascii() else ""
    return name + gap + of_zh + bracket + measure, of_en.format(en)


def _limits(limits: Sequence[float], unit: str) -> str:
    low, high = limits
    shown = "{:.0%}".format if unit == "time saved" else "{:g}".format
    return f"\u00b1{shown(high)}" if low == -high else f"{shown(low)}\u2013{shown(high)}"


def _reason_in_chinese(reason: str) -> str:
    for pattern, chinese in _PATTERNS.items():
        reason = re.sub(pattern, chinese, reason)
    for text, chinese in _REASONS.items():
        reason = reason.replace(text, chinese)
    return reason.replace("; ", "；")
