"""What a clause of the toy corpus says: who does what, when, where and how.

A `world` fixes the time of a clause and with it the tenses of both languages: `past`, `now`,
`future`, `habit`, `since` (German present, English perfect), `before` and `before-past` (the
earlier of two events).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from normlab.data.toy.adverbials import location, time
from normlab.data.toy.clauses import Clause, Part, to_english, to_german
from normlab.data.toy.dice import Dice
from normlab.data.toy.german import ACC, DAT, NOM, RELATIVE
from normlab.data.toy.nominals import Nominal, name, someone, speaker
from normlab.data.toy.nouns import KINDS, Noun
from normlab.data.toy.phrases import DEFINITE, noun_phrase
from normlab.data.toy.tenses import finish_clause
from normlab.data.toy.verbs import VERBS, Verb
from normlab.data.toy.words import CAUSES, FREQUENCIES, MANNERS, MEANS

PEOPLE = ("person", "kin", "name")
_MODALS = (("können", 5.0), ("müssen", 5.0), ("wollen", 4.0), ("sollen", 2.5), ("dürfen", 1.5),
           ("möchten", 3.0))  # fmt: skip
_NO_OBJECT = ("-", "goal", "city", "place", "home")


@cache
def verbs_for(kind: str) -> tuple[Verb, ...]:
    """Return the verbs whose subject may be any noun of a kind."""
    group = "person" if kind == "name" else kind
    return tuple(
        verb
        for verb in VERBS
        if verb.frame != "swap"
        and "o" not in verb.flags
        and all(noun in verb.subjects for noun in KINDS.get(group, ()))
        and group in KINDS
    )


@cache
def _verbs_with_object(noun: Noun) -> tuple[Verb, ...]:
    """Return the verbs people can do to a noun, without frames of two objects."""
    return tuple(
        verb
        for verb in VERBS
        if noun in verb.objects
        and verb.frame not in ("swap", "DA")
        and KINDS["person"][0] in verb.subjects
        and "o" not in verb.flags
    )


def _draw_subject(dice: Dice, subjects: Sequence[Noun], room: float) -> Nominal:
    """Draw a subject among nouns; people may also be pronouns and names."""
    kinds = {noun.kind for noun in subjects}
    if "person" in kinds:
        form = dice.uniform()
        if form < 0.3:
            return speaker(dice)
        if form < 0.45:
            return name(dice)
        if form < 0.48:
            return someone(dice)
        if form < 0.48 + 0.08 * room:
            pair = (name(dice), noun_phrase(dice, KINDS["kin"], room=0.2, determiners=DEFINITE))
            return _join(dice, *pair)
    return noun_phrase(dice, subjects, room=room)


def _join(dice: Dice, first: Nominal, second: Nominal) -> Nominal:
    forms = tuple(f"{a} und {b}" for a, b in zip(first.german, second.german, strict=True))
    text = f"{first.english} and {second.english}"
    return Nominal(
        german=(forms[0], forms[1], forms[2], forms[3]),
        english=text,
        english_object=text,
        agreement="3p",
        english_agreement="p",
        gender="p",
        kind="person",
        possessive=("ihr", "their"),
    )


def _person_object(dice: Dice, subject: Nominal) -> Nominal | None:
    """Draw a pronoun or a name as an object, or None for a noun phrase."""
    form = dice.uniform()
    drawn = speaker(dice)
    other = name(dice)
    # a pronoun of the subject's own person would have to be reflexive
    if form < 0.22 and drawn.agreement[0] != subject.agreement[0]:
        return drawn
    if form < 0.22 and drawn.agreement == subject.agreement == "3s":
        return drawn
    return other if form < 0.36 else None


def _object(
    dice: Dice, verb: Verb, subject: Nominal, *, case: int, room: float, negated: bool, world: str
) -> tuple[Nominal, bool]:
    """Draw an object, and tell whether it carries the negation itself (kein)."""
    kinds = {noun.kind for noun in verb.objects}
    drawn = _person_object(dice, subject) if kinds <= {"person", "kin", "animal"} and (
        "person" in kinds) else None  # fmt: skip
    kein = negated and drawn is None and case == ACC and dice.chance(0.5)
    if drawn is not None:
        return drawn, False
    single = "o" in verb.flags
    if kein:
        determiners: tuple[str, ...] = ("kein",)
    elif negated or verb.reflexive or single:
        determiners = DEFINITE
    elif verb.stem_verb in ("hassen", "lieben", "kennen"):
        determiners = (*DEFINITE, "name")
    else:
        determiners = ()
    phrase = noun_phrase(
        dice, verb.objects, room=room, owner=subject, determiners=determiners,
        plural=False if single else None,
    )  # fmt: skip
    return with_relative(dice, phrase, world=world, room=room), kein


def with_relative(dice: Dice, phrase: Nominal, *, world: str, room: float) -> Nominal:
    """Hang a relative clause on a noun phrase, sometimes."""
    suited = phrase.noun is not None and "des " not in phrase.german[NOM] and phrase.definite
    if not dice.chance(0.26 * room) or not suited or phrase.noun is None:
        return phrase
    world = world if world in ("past", "now") else "now"
    pronoun = RELATIVE[phrase.gender]
    person = phrase.kind in PEOPLE
    subject_verbs = verbs_for(phrase.kind)
    object_verbs = _verbs_with_object(phrase.noun)
    if subject_verbs and (not object_verbs or dice.chance(0.55)):
        who = replace(phrase, german=("", "", "", ""), english="", english_object="", noun=None)
        inner = event(dice, world=world, room=room * 0.4, subject=who, plain=True, bare=True)
        german_text = to_german(inner, "last", lead=pronoun[NOM], subject=False)
        lead = dice.say(("who", "that") if person else ("that", "which"))
        english_text = to_english(inner, lead=lead, subject=False)
    elif object_verbs:
        verb = dice.pick(object_verbs)
        who = name(dice) if dice.chance(0.4) else speaker(dice)
        inner = event(
            dice,
            world=world,
            room=room * 0.3,
            subject=who,
            plain=True,
            bare=True,
            verb=verb,
            gap=True,
        )
        case = DAT if verb.frame.endswith("D") else ACC
        preposition = "" if verb.frame in ("A", "D") else verb.frame.split()[0] + " "
        german_text = to_german(inner, "last", lead=preposition + pronoun[case])
        lead = dice.say(("that", "", "who") if person else ("that", "", "which"))
        english_text = to_english(inner, lead=lead)
    else:
        return phrase
    forms = tuple(f"{form} , {german_text} ," for form in phrase.german)
    return replace(
        phrase,
        german=(forms[0], forms[1], forms[2], forms[3]),
        english=f"{phrase.english} {english_text}",
        english_object=f"{phrase.english_object} {english_text}",
        contracts=False,
    )


def event(
    dice: Dice,
    *,
    world: str,
    room: float,
    subject: Nominal | None = None,
    plain: bool = False,
    bare: bool = False,
    verb: Verb | None = None,
    gap: bool = False,
) -> Clause:
    """Draw a clause.

    `room` (0 to 1) sets how much it says, `subject` who it is about. `plain` leaves out negation
    and modals, `bare` also what only a finite clause has (frequency, liking). `verb` fixes
    the verb; `gap` leaves its object to a relative pronoun.
    """
    options = VERBS if subject is None else verbs_for(subject.kind)
    if verb is None:
        verb = dice.pick(options)
    if world == "since" and ("d" not in verb.flags or verb.reflexive):
        world = "now"
    swap = verb.frame == "swap"
    given = subject
    if subject is None:
        if swap:
            subject = noun_phrase(
                dice, verb.subjects, room=room, determiners=("der", "dies", "name")
            )
        elif "o" in verb.flags:
            subject = name(dice)
        else:
            subject = _draw_subject(dice, verb.subjects, room)
        subject = with_relative(dice, subject, world=world, room=room)
    person = subject.kind in PEOPLE
    negated = not plain and world != "since" and subject.definite and dice.chance(0.13)
    quantified = subject.german[0].startswith(("alle ", "jede", "viele ", "niemand", "jemand"))
    negated = negated and not quantified
    parts: list[Part] = []
    english_subject = subject
    kein = False

    if swap:
        liker = _person_object(dice, speaker(dice)) or noun_phrase(
            dice, verb.objects, room=room, determiners=("der", "dies", "own")
        )
        english_subject = liker
        role = "pronoun" if liker.pronoun else "dative"
        parts.append(Part(role, liker.german[DAT], "", "none", liker))
        parts.append(Part("hidden", "", subject.english_object, "object", subject))
    elif not gap and verb.frame not in _NO_OBJECT:
        objects, kein = _objects(dice, verb, subject, room=room, negated=negated, world=world)
        parts += objects
    elif verb.frame in _NO_OBJECT[1:]:
        going = verb.frame in ("goal", "city")
        where, english_where = location(dice, room=room, going=going)
        parts.append(Part("goal" if going else "place", where, english_where))

    busy = "s" not in verb.flags and subject.kind in (*PEOPLE, "animal")
    parts += _adverbials(dice, verb, subject, room=room, busy=busy, negated=negated)
    modal = ""
    if busy and not plain and not swap and world in ("past", "now", "future"):
        usable = _MODALS if world != "past" else _MODALS[:5]
        modal = dice.weighted(usable) if dice.chance(0.17) else ""
    timed = world == "since" or dice.chance(0.2 + 0.5 * room)
    often = dice.chance(0.16)
    liking = dice.chance(0.09)
    moment = ""
    if timed and not (bare and world != "future") and world != "before":
        moment, english_moment = time(dice, world, plain=bool(modal) or not busy)
        parts.append(Part("time", moment, english_moment))
    elif (
        often
        and not bare
        and not negated
        and world in ("past", "now", "habit")
        and ("o" not in verb.flags and not modal)
    ):
        word = dice.pick(FREQUENCIES)
        parts.append(Part("frequency", word.german, dice.say(word.english)))
        world = "habit" if world == "now" else world
    elif (
        liking
        and not kein
        and busy
        and person
        and not (bare or modal)
        and world in ("now", "habit")
        and not (
            verb.reflexive or "o" in verb.flags or any(part.role == "manner" for part in parts)
        )
    ):
        parts.append(Part("manner", "gern", "", "none"))
        world = "liking"
    return finish_clause(
        dice, verb=verb, subject=subject, english_subject=english_subject, parts=tuple(parts),
        world=world, modal=modal, moment=moment, negated=negated, kein=kein,
        may_front=given is None or person,
    )  # fmt: skip


def _objects(
    dice: Dice, verb: Verb, subject: Nominal, *, room: float, negated: bool, world: str
) -> tuple[list[Part], bool]:
    """Draw the objects of a verb, and tell whether one carries the negation (kein)."""
    parts: list[Part] = []
    if verb.frame == "DA":
        receiver = _person_object(dice, subject) or noun_phrase(
            dice, (*KINDS["person"], *KINDS["kin"]), room=room * 0.5, owner=subject,
            determiners=DEFINITE,
        )  # fmt: skip
        role = "pronoun" if receiver.pronoun else "dative"
        parts.append(Part(role, receiver.german[DAT], receiver.english_object, "dative", receiver))
    case = DAT if verb.frame.endswith("D") else ACC
    thing, kein = _object(
        dice, verb, subject, case=case, room=room, negated=negated and " " not in verb.frame,
        world=world,
    )  # fmt: skip
    if " " in verb.frame:
        text = thing.after(verb.frame.split()[0], case)
        parts.append(Part("prepositional", text, thing.english_object, "object", thing))
        return parts, False
    if thing.pronoun:
        role = "pronoun"
    elif verb.frame == "D":
        role = "object"
    else:
        role = "object" if thing.definite else "indefinite"
    text = thing.english_object
    if kein:
        text = text.removeprefix("no ")
        article = "any" if thing.agreement == "3p" or (
            thing.noun is not None and not thing.noun.countable) else "a"  # fmt: skip
        text = f"{article} {text}"
    parts.append(Part(role, thing.german[case], text, "object", thing))
    return parts, kein


def _adverbials(
    dice: Dice, verb: Verb, subject: Nominal, *, room: float, busy: bool, negated: bool
) -> list[Part]:
    """Draw company, means, manner, place and cause."""
    parts: list[Part] = []
    person = subject.kind in PEOPLE
    motion = verb.frame in ("goal", "city")
    lasting = "d" in verb.flags or (verb.frame not in _NO_OBJECT and "s" not in verb.flags)
    company = dice.chance(0.14 * room)
    if (
        company
        and busy
        and person
        and "mit" not in verb.frame + verb.prefix
        and verb.frame != "DA"
        and ((lasting or motion) and not negated)
    ):
        friend = noun_phrase(
            dice, KINDS["kin"], room=room * 0.4, owner=subject, determiners=DEFINITE
        )
        together = dice.chance(0.3)
        parts.append(
            Part(
                "with",
                ("zusammen " if together else "") + friend.after("mit", DAT),
                ("together " if together else "") + f"with {friend.english_object}",
            )
        )
    elif motion and dice.chance(0.3 * room) and verb.stem_verb in ("fahren", "kommen", "reisen"):
        words = (
            MEANS
            if verb.stem_verb == "kommen"
            else tuple(w for w in MEANS if "Fuß" not in w.german)
        )
        word = dice.pick(words)
        parts.append(Part("means", word.german, dice.say(word.english)))
    elif (
        dice.chance(0.3 * room)
        and busy
        and person
        and lasting
        and not negated
        and (not verb.reflexive and "o" not in verb.flags)
    ):
        word = dice.pick(MANNERS)
        parts.append(Part("manner", word.german, dice.say(word.english)))
    placed = dice.chance(0.06 + 0.35 * room)
    if placed and busy and not negated and verb.frame in ("-", "A", "D") and "n" not in verb.flags:
        where, english_where = location(dice, room=room, going=False)
        parts.append(Part("place", where, english_where))
    if dice.chance(0.12 * room) and person and "s" not in verb.flags and not negated:
        word = dice.pick(CAUSES)
        parts.append(Part("cause", word.german, dice.say(word.english)))
    return parts
