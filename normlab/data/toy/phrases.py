"""Noun phrases: determiner, adjectives, noun and what follows it, agreeing in every case."""

from collections.abc import Sequence

from normlab.data.toy import english, german
from normlab.data.toy.dice import Dice
from normlab.data.toy.german import DAT, GEN, Cases
from normlab.data.toy.nominals import DU, ER, SIE, WIR, I, Nominal
from normlab.data.toy.nouns import KINDS, Noun
from normlab.data.toy.words import ADJECTIVES, CITIES, MEN, WOMEN, Word

_CLASHES = tuple(
    frozenset(row.split())
    for row in (
        "groß klein", "alt jung neu", "teuer billig", "dick dünn", "gut schlecht lecker",
        "lang kurz", "heiß kalt warm frisch", "schwer leicht", "sauber schmutzig",
        "schnell langsam", "arm reich", "krank gesund stark", "faul fleißig",
        "glücklich traurig zufrieden wütend", "schön hässlich", "einfach schwierig",
        "interessant langweilig spannend", "kaputt modern neu", "modern alt",
        "rot blau grün gelb schwarz weiß braun grau dunkel", "süß heiß", "tapfer schüchtern",
    )
)  # fmt: skip
_SINGULAR = (
    ("der", 44.0),
    ("ein", 27.0),
    ("own", 12.0),
    ("dies", 8.0),
    ("jed", 4.0),
    ("name", 5.0),
)
_PLURAL = (
    ("der", 36.0), ("", 10.0), ("own", 12.0), ("dies", 8.0), ("number", 14.0), ("viel", 6.0),
    ("einig", 5.0), ("mehrer", 4.0), ("all", 5.0), ("name", 3.0),
)  # fmt: skip
_MASS = (("der", 40.0), ("", 45.0), ("own", 15.0))
_KIN = (("own", 50.0), ("der", 22.0), ("ein", 14.0), ("name", 14.0))
_ENGLISH_DETERMINERS = {
    "der": (("the",), ("the",)),
    "ein": (("a",), ("",)),
    "kein": (("no",), ("no",)),
    "dies": (("this",), ("these",)),
    "jed": (("every", "each"), ("",)),
    "viel": (("",), ("many", "a lot of")),
    "einig": (("",), ("some", "a few")),
    "mehrer": (("",), ("several",)),
    "all": (("",), ("all the", "all")),
    "welch": (("which", "what"), ("which", "what")),
}
_OWNERS = (I, DU, ER, SIE, WIR)
INDEFINITE = ("", "ein", "kein", "number", "viel", "einig", "mehrer")
DEFINITE = ("der", "dies", "own")


def _adjectives(dice: Dice, noun: Noun, room: float) -> tuple[Word, ...]:
    options = ADJECTIVES.get(noun.kind, ())
    if not noun.countable:
        options = tuple(word for word in options if word.german not in ("groß", "klein"))
    if not options or not dice.chance(0.12 + 0.5 * room):
        return ()
    first = dice.below(len(options))
    if not dice.chance(0.35 * room):
        return (options[first],)
    second = dice.below(len(options))
    pair = {options[first].german, options[second].german}
    if first == second or any(len(pair & clash) == 2 for clash in _CLASHES):
        return (options[first],)
    return tuple(options[i] for i in sorted((first, second)))


def count(dice: Dice) -> int:
    """Draw a number of things: mostly small, never one or ending in a single hundred and one."""
    value = dice.weighted(((2 + dice.below(11), 6.0), (13 + dice.below(87), 3.0),
                           (100 + dice.below(9000), 1.0)))  # fmt: skip
    return value + 1 if value % 100 == 1 and value > 99 else value


def spell(dice: Dice, value: int) -> str:
    """Word a number in English."""
    return english.number(value, joint=dice.say((" ", " and ")))


def noun_phrase(
    dice: Dice,
    nouns: Sequence[Noun],
    *,
    room: float,
    owner: Nominal | None = None,
    determiners: Sequence[str] = (),
    plural: bool | None = None,
) -> Nominal:
    """Draw a noun phrase headed by one of `nouns`.

    `room` (0 to 1) sets how much is hung on it, `owner` whose a possessive is, `determiners` the
    allowed ones (all where empty), `plural` the number (drawn where None).
    """
    noun = dice.pick(nouns)
    many = noun.countable and (dice.chance(0.24) if plural is None else plural)
    table = _PLURAL if many else _SINGULAR if noun.countable else _MASS
    if noun.kind == "kin" and not many:
        table = _KIN
    choices = [(d, w) for d, w in table if (not determiners or d in determiners)]
    choices = [(d, w) for d, w in choices if not (noun.kind in ("person", "place")
                                                  and d in ("own", "name"))]  # fmt: skip
    determiner = dice.weighted(choices) if choices else determiners[0] if determiners else "der"
    gender = "p" if many else noun.gender
    head = dice.say(noun.english)
    head = english.plural(head) if many else head

    front, english_front, stem = _determiner(dice, determiner, gender, owner, noun)
    words = _adjectives(dice, noun, room)
    very = bool(words) and determiner in ("ein", "der", "") and dice.chance(0.1 * room)
    cases = [front]
    if very:
        cases.append(_unchanged("sehr"))
    cases += [german.adjective(word.german, stem, gender) for word in words]
    cases.append(german.decline(noun, plural=many))
    core = [" ".join(part[case] for part in cases if part[case]) for case in range(4)]
    modifiers = [*(["very"] if very else []), *(dice.say(word.english) for word in words), head]
    english_core = " ".join(modifiers)

    tail, english_tail = "", ""
    attribute = _attribute(dice, noun, room) if determiner in ("der", "ein") else None
    if attribute is not None:
        tail, english_tail, genitive = attribute
        if genitive is not None and determiner == "der" and dice.maybe(0.65):
            english_front, english_tail = _saxon(genitive), ""
    text = " ".join(part for part in (english_front, english_core, english_tail) if part)
    return Nominal(
        german=(core[0] + tail, core[1] + tail, core[2] + tail, core[3] + tail),
        english=text,
        english_object=text,
        agreement="3p" if many else "3s",
        english_agreement="p" if many else "3s",
        gender=gender,
        kind=noun.kind,
        possessive=("ihr", "their") if many else {
            "m": ("sein", "his"), "f": ("ihr", "her"), "n": ("sein", "its")
        }[gender] if noun.kind in ("person", "kin") and noun.lemma not in ("Kind", "Mädchen") else {
            "f": ("ihr", "its")}.get(gender, ("sein", "her" if noun.lemma == "Mädchen" else "its")),
        noun=noun,
        definite=determiner not in INDEFINITE,
        contracts=determiner == "der",
    )  # fmt: skip


def _unchanged(word: str) -> Cases:
    return (word, word, word, word)


def _determiner(
    dice: Dice, determiner: str, gender: str, owner: Nominal | None, noun: Noun
) -> tuple[Cases, str, str]:
    """Return the German forms, the English word and the stem that the adjective looks at."""
    many = gender == "p"
    if determiner == "number":
        value = count(dice)
        word = german.number(value)
        return _unchanged(word), spell(dice, value), ""
    if determiner == "own":
        use_owner = dice.chance(0.75)
        drawn = dice.pick(_OWNERS)
        holder = owner if owner is not None and owner.possessive and use_owner else drawn
        stem, word = holder.possessive or ("mein", "my")
        return german.determine(stem, gender), word, stem
    if determiner == "name":
        holder = dice.pick(MEN + WOMEN)
        return _unchanged(f"{holder}s"), f"{holder}'s", ""
    if determiner == "":
        return _unchanged(""), "some" if not many and dice.maybe(0.25) else "", ""
    word = dice.say(_ENGLISH_DETERMINERS[determiner][many])
    return german.determine(determiner, gender), word, determiner


def _saxon(owner: Nominal) -> str:
    bare = owner.agreement == "3p" and owner.english.endswith("s")
    return owner.english + ("'" if bare else "'s")


def _attribute(dice: Dice, noun: Noun, room: float) -> tuple[str, str, Nominal | None] | None:
    """Draw what follows the noun: German, English, and the owner where it is a genitive."""
    if not dice.chance(0.3 * room):
        return None
    if noun.kind == "person":
        if dice.chance(0.5):
            city, english_city = dice.pick(CITIES)
            return f" aus {city}", f"from {english_city}", None
        piece = noun_phrase(
            dice, KINDS["clothes"], room=0.6, determiners=("der", "ein"), plural=False
        )
        return f" mit {piece.german[DAT]}", f"with {piece.english_object}", None
    if noun.kind in ("kin", "vehicle", "building", "thing", "text", "clothes"):
        people = KINDS["kin"] if noun.kind != "kin" else KINDS["person"]
        holder = noun_phrase(dice, people, room=0.0, determiners=("der", "own"))
        if noun.kind == "kin" or dice.chance(0.5):
            return f" {holder.german[GEN]}", f"of {holder.english_object}", holder
    if noun.kind in ("thing", "text", "food"):
        where = noun_phrase(
            dice, KINDS["furniture"][:2], room=0.2, determiners=("der",), plural=False
        )
        return f" {where.after('auf', DAT)}", f"on {where.english_object}", None
    if noun.kind == "building":
        city, english_city = dice.pick(CITIES)
        return f" in {city}", f"in {english_city}", None
    return None
