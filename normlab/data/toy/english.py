"""English inflection: plurals, verb forms, contractions, articles, numbers."""

import re
from collections.abc import Callable

from normlab.data.toy.listing import listing

_PLURALS = {
    "man": "men",
    "woman": "women",
    "child": "children",
    "mouse": "mice",
    "sheep": "sheep",
    "fish": "fish",
    "wolf": "wolves",
    "knife": "knives",
    "thief": "thieves",
    "scarf": "scarves",
    "potato": "potatoes",
    "tomato": "tomatoes",
    "policeman": "policemen",
    "policewoman": "policewomen",
    "salesman": "salesmen",
    "saleswoman": "saleswomen",
    "woods": "woods",
}

# base: past, participle
_IRREGULAR = {
    base: (past, participle)
    for base, past, participle in (
        row.split("/")
        for row in listing(
            """
    be/was/been have/had/had do/did/done go/went/gone come/came/come get/got/gotten
    sleep/slept/slept weep/wept/wept dream/dreamed/dreamed sing/sang/sung swim/swam/swum
    run/ran/run take/took/taken wake/woke/woken fall/fell/fallen leave/left/left
    begin/began/begun think/thought/thought see/saw/seen hear/heard/heard read/read/read
    write/wrote/written eat/ate/eaten drink/drank/drunk buy/bought/bought sell/sold/sold
    find/found/found lose/lost/lost forget/forgot/forgotten know/knew/known meet/met/met
    understand/understood/understood make/made/made cut/cut/cut wear/wore/worn
    build/built/built draw/drew/drawn shut/shut/shut catch/caught/caught bite/bit/bitten
    steal/stole/stolen hide/hid/hidden choose/chose/chosen win/won/won
    bring/brought/brought throw/threw/thrown put/put/put hang/hung/hung give/gave/given
    send/sent/sent lend/lent/lent tell/told/told speak/spoke/spoken drive/drove/driven
    fly/flew/flown sit/sat/sat stand/stood/stood lie/lay/lain spend/spent/spent
    say/said/said mean/meant/meant feel/felt/felt become/became/become keep/kept/kept
    feed/fed/fed cost/cost/cost pay/paid/paid
"""
        )
    )
}
_DOUBLING = ("plan", "stop", "shop", "run", "swim", "get", "put", "sit", "cut", "shut",
             "win", "begin", "forget", "chat")  # fmt: skip
AUXILIARIES = ("be", "have*", "can", "could", "will", "would", "should", "may", "must")

_NEGATIVE_CONTRACTIONS = {
    word: word + "n't"
    for word in listing(
        """
    do does did is are was were has have had could would should must
"""
    )
} | {"can": "can't", "will": "won't"}
_POSITIVE_CONTRACTIONS = {
    "am": "'m", "is": "'s", "are": "'re", "have": "'ve", "has": "'s", "had": "'d", "will": "'ll",
    "would": "'d",
}  # fmt: skip
_PRONOUNS = ("I", "you", "he", "she", "it", "we", "they")
_VOWEL_SOUND = re.compile(r"\b([Aa]) (?=[aeiouAEIOU](?!ni[vq]|uro|ne\b)|hon|hour)")


def plural(noun: str) -> str:
    """Return the plural of a noun phrase, whose last word inflects."""
    first, _, last = noun.rpartition(" ")
    if last in _PLURALS:
        form = _PLURALS[last]
    elif last.endswith(("s", "x", "ch", "sh")):
        form = last + "es"
    elif last.endswith("y") and last[-2] not in "aeiou":
        form = last[:-1] + "ies"
    else:
        form = last + "s"
    return f"{first} {form}" if first else form


def past(verb: str) -> str:
    """Return the simple past of a verb, of which the first word inflects."""
    return _first(verb, lambda base: _IRREGULAR[base][0] if base in _IRREGULAR else _ed(base))


def participle(verb: str) -> str:
    """Return the past participle of a verb, of which the first word inflects."""
    return _first(verb, lambda base: _IRREGULAR[base][1] if base in _IRREGULAR else _ed(base))


def gerund(verb: str) -> str:
    """Return the -ing form of a verb, of which the first word inflects."""
    return _first(verb, _ing)


def inflect(verb: str, tense: str, agreement: str) -> str:
    """Return the finite form of a verb or auxiliary in `present` or `past`.

    `agreement` is `1s`, `3s` or `p`; `have*` is the auxiliary.
    """
    base, _, rest = verb.partition(" ")
    base = base.removesuffix("*")
    if base in ("can", "could", "will", "would", "should", "may", "must"):
        form = base
    elif base == "be":
        present = {"1s": "am", "3s": "is", "p": "are"}[agreement]
        form = present if tense == "present" else ("were" if agreement == "p" else "was")
    elif tense == "past":
        form = past(base)
    elif agreement != "3s":
        form = base
    else:
        form = "has" if base == "have" else "does" if base == "do" else _third(base)
    return f"{form} {rest}" if rest else form


def negate(auxiliary: str, *, contract: bool) -> str:
    """Return an auxiliary with `not`, contracted on request where English can."""
    if contract and auxiliary in _NEGATIVE_CONTRACTIONS:
        return _NEGATIVE_CONTRACTIONS[auxiliary]
    return "cannot" if auxiliary == "can" else f"{auxiliary} not"


def contract(subject: str, auxiliary: str) -> str:
    """Join a subject and its auxiliary: contracted after a pronoun, else side by side."""
    if subject in _PRONOUNS and auxiliary in _POSITIVE_CONTRACTIONS:
        return subject + _POSITIVE_CONTRACTIONS[auxiliary]
    return f"{subject} {auxiliary}"


def settle_articles(text: str) -> str:
    """Turn `a` into `an` before a vowel sound."""
    return _VOWEL_SOUND.sub(r"\1n ", text)


def _first(verb: str, change: Callable[[str], str]) -> str:
    base, _, rest = verb.partition(" ")
    return f"{change(base)} {rest}" if rest else change(base)


def _ed(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + (base[-1] if base in _DOUBLING else "") + "ed"


def _ing(base: str) -> str:
    if base == "be":
        return "being"
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base.endswith("e") and not base.endswith("ee"):
        return base[:-1] + "ing"
    return base + (base[-1] if base in _DOUBLING else "") + "ing"


def _third(base: str) -> str:
    if base.endswith(("s", "x", "ch", "sh", "o", "z")):
        return base + "es"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + "s"


_UNITS = listing(
    """
    zero one two three four five six seven eight nine ten eleven twelve thirteen
    fourteen fifteen sixteen seventeen eighteen nineteen
"""
)
_TENS = listing("- - twenty thirty forty fifty sixty seventy eighty ninety")


def number(value: int, *, joint: str = " ") -> str:
    """Spell a number below ten thousand; `joint` stands before what is less than a hundred."""
    if value < 20:
        return _UNITS[value]
    if value < 100:
        tens, unit = divmod(value, 10)
        return _TENS[tens] + (f"-{_UNITS[unit]}" if unit else "")
    scale, word = (1000, "thousand") if value >= 1000 else (100, "hundred")
    head, rest = divmod(value, scale)
    front = f"{number(head)} {word}"
    if not rest:
        return front
    return front + (joint if rest < 100 else " ") + number(rest, joint=joint)
