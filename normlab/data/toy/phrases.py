"""Noun phrases and adverbials: a phrase in every German case beside its English wording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from normlab.data.toy import english, german
from normlab.data.toy.dice import Dice
from normlab.data.toy.german import ACC, DAT, GEN, Cases
from normlab.data.toy.nouns import KINDS, Noun
from normlab.data.toy.words import (
    ADJECTIVES,
    CITIES,
    MEN,
    MONTHS,
    PLACES,
    SURNAMES,
    TIMES,
    WEEKDAYS,
    WOMEN,
    Word,
)


@dataclass(frozen=True)
class Nominal:
    """A noun phrase, a name or a pronoun in both languages.

    `agreement` is person and number in German (`1s` to `3p`), `english_agreement` the English verb
    form (`1s`, `3s`, `p`). `gender` is `m f n`, or `p` in the plural. `possessive` is the pair
    of stems such as sein, his. `article` is False where a preposition must not contract.
    """

    german: Cases
    english: str
    english_object: str
    agreement: str
    english_agreement: str
    gender: str
    kind: str
    possessive: tuple[str, str] | None = None
    noun: Noun | None = None
    pronoun: bool = False
    definite: bool = True
    contracts: bool = True

    @property
    def singular_masculine(self) -> bool:
        """Tell whether accusative and nominative differ, so that word order is free."""
        return self.gender == "m" and not self.pronoun and self.kind != "name"

    def after(self, preposition: str, case: int) -> str:
        """Return the German prepositional phrase."""
        return german.prepositional(preposition, self.german[case], contract=self.contracts)


def _pronoun(
    forms: str, words: str, agreement: str, english_agreement: str, gender: str, possessive: str
) -> Nominal:
    nominative, accusative, dative = forms.split()
    subject, other = words.split("/")
    own, their = possessive.split("/") if possessive else ("", "")
    return Nominal(
        german=(nominative, accusative, dative, ""),
        english=subject,
        english_object=other,
        agreement=agreement,
        english_agreement=english_agreement,
        gender=gender,
        kind="person",
        possessive=(own, their) if possessive else None,
        pronoun=True,
    )


I = _pronoun("ich mich mir", "I/me", "1s", "1s", "", "mein/my")  # noqa: E741
DU = _pronoun("du dich dir", "you/you", "2s", "p", "", "dein/your")
ER = _pronoun("er ihn ihm", "he/him", "3s", "3s", "m", "sein/his")
SIE = _pronoun("sie sie ihr", "she/her", "3s", "3s", "f", "ihr/her")
ES = _pronoun("es es ihm", "it/it", "3s", "3s", "n", "sein/its")
WIR = _pronoun("wir uns uns", "we/us", "1p", "p", "p", "unser/our")
IHR = _pronoun("ihr euch euch", "you/you", "2p", "p", "p", "euer/your")
THEY = _pronoun("sie sie ihnen", "they/them", "3p", "p", "p", "ihr/their")
FORMAL = _pronoun("Sie Sie Ihnen", "you/you", "3p", "p", "p", "Ihr/your")
SOMEONE = (
    ("jemand jemanden jemandem", ("someone/someone", "somebody/somebody"), "3s"),
    ("niemand niemanden niemandem", ("no one/no one", "nobody/nobody"), "3s"),
    ("man einen einem", ("you/you", "people/people"), "p"),
)
_SPEAKERS = (
    (I, 4.0), (DU, 1.5), (ER, 3.0), (SIE, 3.0), (WIR, 2.5), (IHR, 0.7), (THEY, 1.6), (FORMAL, 1.0),
)  # fmt: skip
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
_SINGULAR = (("der", 44.0), ("ein", 27.0), ("own", 12.0), ("dies", 8.0), ("jed", 4.0), ("name", 5.0))
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


def speaker(dice: Dice) -> Nominal:
    """Draw a personal pronoun for a person."""
    return dice.weighted(_SPEAKERS)


def someone(dice: Dice) -> Nominal:
    """Draw an indefinite pronoun."""
    forms, words, agreement = SOMEONE[dice.weighted(((0, 3.0), (1, 3.0), (2, 2.0)))]
    return replace(
        _pronoun(forms, dice.say(words), "3s", agreement, "m", ""), definite=False
    )


def name(dice: Dice) -> Nominal:
    """Draw a person by name."""
    man = dice.chance(0.5)
    first = dice.pick(MEN if man else WOMEN)
    if dice.chance(0.2):
        last = dice.pick(SURNAMES)
        forms = (
            (f"Herr {last}", f"Herrn {last}", f"Herrn {last}", f"Herrn {last}s")
            if man
            else (f"Frau {last}",) * 4
        )
        english_name = f"{'Mr.' if man else dice.say(('Ms.', 'Mrs.'))} {last}"
    elif dice.chance(0.2):
        first = f"{first} {dice.pick(SURNAMES)}"
        forms, english_name = (first, first, first, f"{first}s"), first
    else:
        forms, english_name = (first, first, first, f"{first}s"), first
    other = ER if man else SIE
    return Nominal(
        german=(forms[0], forms[1], forms[2], forms[3]),
        english=english_name,
        english_object=english_name,
        agreement="3s",
        english_agreement="3s",
        gender="m" if man else "f",
        kind="name",
        possessive=other.possessive,
    )


def back_reference(nominal: Nominal) -> Nominal:
    """Return the pronoun that takes up a noun phrase: der Tisch, er, it."""
    if nominal.pronoun:
        return nominal
    if nominal.agreement == "3p":
        return replace(THEY, kind=nominal.kind)
    word = {"m": ER, "f": SIE, "n": ES}[nominal.gender]
    if nominal.noun is not None and nominal.noun.lemma == "Mädchen":
        return replace(ES, kind="person", english="she", english_object="her",
                       possessive=("sein", "her"))  # fmt: skip
    if nominal.kind in ("person", "kin", "name"):
        return replace(word, kind="person")
    return replace(word, kind=nominal.kind, english="it", english_object="it",
                   possessive=(word.possessive or ("sein", ""))[:1] + ("its",))  # fmt: skip


def _adjectives(dice: Dice, kind: str, room: float) -> tuple[Word, ...]:
    options = ADJECTIVES.get(kind, ())
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
    words = _adjectives(dice, noun.kind, room)
    very = bool(words) and determiner in ("ein", "der", "") and dice.chance(0.1 * room)
    cases = [front]
    if very:
        cases.append(("sehr",) * 4)
    cases += [german.adjective(word.german, stem, gender) for word in words]
    cases.append(german.decline(noun, plural=many))
    core = [" ".join(part[case] for part in cases if part[case]) for case in range(4)]
    modifiers = [*(["very"] if very else []), *(dice.say(word.english) for word in words), head]
    english_core = " ".join(modifiers)

    tail, english_tail = "", ""
    attribute = _attribute(dice, noun, room) if determiner in ("der", "ein") else None
    if attribute is not None:
        tail, english_tail, genitive = attribute
        if genitive and determiner == "der" and dice.maybe(0.65):
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


def _determiner(
    dice: Dice, determiner: str, gender: str, owner: Nominal | None, noun: Noun
) -> tuple[Cases, str, str]:
    """Return the German forms, the English word and the stem that the adjective looks at."""
    many = gender == "p"
    if determiner == "number":
        value = count(dice)
        word = german.number(value)
        return (word,) * 4, spell(dice, value), ""
    if determiner == "own":
        use_owner = dice.chance(0.75)
        drawn = dice.pick(_OWNERS)
        holder = owner if owner is not None and owner.possessive and use_owner else drawn
        stem, word = holder.possessive or ("mein", "my")
        return german.determine(stem, gender), word, stem
    if determiner == "name":
        holder = dice.pick(MEN + WOMEN)
        return (f"{holder}s",) * 4, f"{holder}'s", ""
    if determiner == "":
        return ("",) * 4, "some" if not many and dice.maybe(0.25) else "", ""
    word = dice.say(_ENGLISH_DETERMINERS[determiner][many])
    return german.determine(determiner, gender), word, determiner


def _saxon(owner: str) -> str:
    return owner + ("'" if owner.endswith("s") else "'s")


def _attribute(dice: Dice, noun: Noun, room: float) -> tuple[str, str, str] | None:
    """Draw what follows the noun: German, English, and the owner where it is a genitive."""
    if not dice.chance(0.3 * room):
        return None
    if noun.kind == "person":
        if dice.chance(0.5):
            city, english_city = dice.pick(CITIES)
            return f" aus {city}", f"from {english_city}", ""
        piece = noun_phrase(dice, KINDS["clothes"], room=0.6, determiners=("der", "ein"), plural=False)
        return f" mit {piece.german[DAT]}", f"with {piece.english_object}", ""
    if noun.kind in ("kin", "vehicle", "building", "thing", "text", "clothes"):
        people = KINDS["kin"] if noun.kind != "kin" else KINDS["person"]
        holder = noun_phrase(dice, people, room=0.0, determiners=("der", "own"))
        if noun.kind == "kin" or dice.chance(0.5):
            return f" {holder.german[GEN]}", f"of {holder.english_object}", holder.english
    if noun.kind in ("thing", "text", "food"):
        where = noun_phrase(dice, KINDS["furniture"][:2], room=0.2, determiners=("der",), plural=False)
        return f" {where.after('auf', DAT)}", f"on {where.english_object}", ""
    if noun.kind == "building":
        city, english_city = dice.pick(CITIES)
        return f" in {city}", f"in {english_city}", ""
    return None


def location(dice: Dice, *, room: float, going: bool) -> tuple[str, str]:
    """Draw a place to be at, or to go to, in German and English."""
    if dice.chance(0.25):
        city, english_city = dice.pick(CITIES)
        return (f"nach {city}", f"to {english_city}") if going else (
            f"in {city}", f"in {english_city}")  # fmt: skip
    where = dice.pick(PLACES)
    phrase = noun_phrase(
        dice, (where.noun,), room=room * 0.7, determiners=("der", "ein", "dies"), plural=False
    ) if dice.chance(0.3) else noun_phrase(
        dice, (where.noun,), room=room * 0.7, determiners=("der",), plural=False)  # fmt: skip
    if going:
        case = DAT if where.to == "zu" else ACC
        return phrase.after(where.to, case), f"{dice.say(where.english_to)} {phrase.english_object}"
    return phrase.after(where.at, DAT), f"{dice.say(where.english_at)} {phrase.english_object}"


_CLOCK_AFTER = ("heute", "morgen", "gestern", "übermorgen", "vorgestern")
_UNITS = (("Tagen", "days"), ("Wochen", "weeks"), ("Monaten", "months"), ("Jahren", "years"))


def clock(dice: Dice) -> tuple[str, str]:
    """Draw a time of day."""
    hour = 1 + dice.below(12)
    form = dice.below(4)
    following = hour % 12 + 1
    if form == 0:
        half = dice.say((f"half past {english.number(hour)}", f"{english.number(hour)} thirty"))
        return f"um halb {german.number(following)}", f"at {half}"
    if form == 1:
        quarter, word = ("nach", "past") if dice.chance(0.5) else ("vor", "to")
        a = dice.say(("a ", ""))
        return (f"um Viertel {quarter} {german.number(hour)}",
                f"at {a}quarter {word} {english.number(hour)}")  # fmt: skip
    full = dice.say((f"{english.number(hour)} o'clock", english.number(hour)))
    return f"um {german.number(hour, inner=True)} Uhr", f"at {full}"


def time(dice: Dice, world: str, *, plain: bool) -> tuple[str, str]:
    """Draw a time adverbial; `plain` leaves out those that force a progressive."""
    form = dice.uniform()
    if world == "since":
        if form < 0.3:
            month, english_month = dice.pick(MONTHS)
            return f"seit {month}", f"since {english_month}"
        value = 2 + dice.below(20)
        unit, english_unit = dice.pick(_UNITS)
        return f"seit {german.number(value)} {unit}", f"for {english.number(value)} {english_unit}"
    if world in ("past", "future") and form < 0.14:
        value = 2 + dice.below(12)
        unit, english_unit = dice.pick(_UNITS)
        spelled = english.number(value)
        if world == "past":
            return f"vor {german.number(value)} {unit}", f"{spelled} {english_unit} ago"
        return f"in {german.number(value)} {unit}", f"in {spelled} {english_unit}"
    if world == "past" and form < 0.2:
        year = 1850 + dice.below(170)
        return f"im Jahr {year}", f"in {year}"
    if world in ("past", "future") and form < 0.4:
        day, english_day = dice.pick(WEEKDAYS)
        german_day, english_text = f"am {day}", f"on {english_day}"
        if form < 0.28:
            at, english_at = clock(dice)
            return f"{german_day} {at}", f"{english_text} {english_at}"
        return german_day, english_text
    if world in ("past", "future") and form < 0.48:
        month, english_month = dice.pick(MONTHS)
        return f"im {month}", f"in {english_month}"
    if world == "habit" and form < 0.25:
        day, english_day = dice.pick(WEEKDAYS)
        return f"jeden {day}", dice.say((f"every {english_day}", f"on {english_day}s"))
    options = TIMES[world][:1] if plain and world == "now" else TIMES[world]
    word = dice.pick(options)
    reading = dice.say(word.english)
    if word.german in _CLOCK_AFTER and dice.chance(0.3):
        at, english_at = clock(dice)
        first = dice.maybe(0.5)
        return (f"{word.german} {at}",
                f"{reading} {english_at}" if first else f"{english_at} {reading}")  # fmt: skip
    return word.german, reading
