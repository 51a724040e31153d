"""Statements: events, descriptions, what there is, and the passive."""

from dataclasses import replace

from normlab.data.toy import english, german
from normlab.data.toy.adverbials import location, time
from normlab.data.toy.clauses import Clause, Part, predicate
from normlab.data.toy.dice import Dice
from normlab.data.toy.events import event
from normlab.data.toy.german import ACC, DAT, NOM
from normlab.data.toy.nominals import ES, Nominal, name, speaker
from normlab.data.toy.nouns import KINDS
from normlab.data.toy.phrases import count, noun_phrase, spell
from normlab.data.toy.tenses import copula
from normlab.data.toy.verbs import verb
from normlab.data.toy.words import ADJECTIVES, CITIES, COMPARATIVES, DEGREES, PROFESSIONS

_BECOME = verb("werden wird wurde *geworden", "get,become")
_COST = verb("kosten", "cost", flags="sp")
_THERE_IS = verb("geben gibt gab gegeben", "be", flags="sp")
_MOODS = ("müde", "krank", "wütend", "hungrig", "nervös", "traurig", "reich")


def statement(dice: Dice, world: str, room: float, subject: Nominal | None) -> Clause:
    """Draw a clause that may be an event, a description or a count of what there is."""
    form = dice.uniform()
    if form < 0.72 or world == "since":
        clause = event(dice, world=world, room=room, subject=subject)
        passive = _passive(dice, world, room) if subject is None and dice.chance(0.06) else None
        return passive or clause
    if form < 0.77 and subject is None:
        return _there_is(dice, world, room)
    return _description(dice, world, room, subject)


def _passive(dice: Dice, world: str, room: float) -> Clause | None:
    """Draw a passive clause: das Haus wurde von dem Arzt verkauft."""
    clause = event(dice, world="past" if world == "past" else "now", room=room * 0.5, plain=True)
    word = clause.verb
    if word.frame != "A" or "s" in word.flags or clause.part("frequency") or clause.modal:
        return None
    thing = noun_phrase(dice, word.objects, room=room, determiners=("der", "dies", "ein"))
    agent = noun_phrase(
        dice, (*KINDS["person"], *KINDS["kin"]), room=0.1, determiners=("der", "own")
    )
    named = dice.chance(0.6)
    parts = tuple(part for part in clause.parts if part.role in ("time", "place"))
    tense = "passive past" if world == "past" else "passive"
    # "take pictures of" makes no passive
    words = clause.reading if clause.reading.count(" ") < 2 else word.english[0]
    form = "past" if world == "past" else "present"
    if named:
        parts += (Part("agent", agent.after("von", DAT), f"by {agent.english_object}"),)
    return replace(
        clause, subject=thing, english_subject=thing, tense=tense, parts=parts, front=clause.front
        if clause.front in ("time", "place") else "", english_front="",
        predicate=predicate(words, "passive past" if form == "past" else "passive", ""),
        nicht=False, english_not=False,
    )  # fmt: skip


def _there_is(dice: Dice, world: str, room: float) -> Clause:
    """Draw what there is somewhere: es gibt einen Park in der Stadt."""
    city = dice.chance(0.4)
    kinds = ("building",) if city else ("animal", "furniture", "vehicle")
    nouns = tuple(noun for kind in kinds for noun in KINDS[kind])
    thing = noun_phrase(dice, nouns, room=room, determiners=("ein", "number", "viel", "einig"))
    where = location(dice, room=room, going=False)
    if city:
        german_city, english_city = dice.pick(CITIES)
        where = (f"in {german_city}", f"in {english_city}")
    there = replace(ES, english="there", english_object="there",
                    english_agreement=thing.english_agreement, possessive=None)  # fmt: skip
    clause = copula(
        dice, there, world="past" if world == "past" else "habit",
        predicate_words=(thing.german[ACC], thing.english_object), negated=False,
        verb=_THERE_IS,
    )  # fmt: skip
    return replace(clause, parts=(Part("place", *where), *clause.parts),
                   front="place" if dice.chance(0.4) else "", contracted=False)  # fmt: skip


def _description(dice: Dice, world: str, room: float, subject: Nominal | None) -> Clause:
    """Draw what somebody or something is, is like, or becomes."""
    if subject is None:
        kind = dice.pick(("person", "kin", "person", "animal", "thing", "clothes", "text", "food",
                          "vehicle", "building", "matter", "event", "machine"))  # fmt: skip
        drawn = noun_phrase(
            dice,
            KINDS[kind],
            room=room,
            determiners=("der", "own", "dies", "number", "name", "viel", "all"),
        )
        person = speaker(dice) if dice.chance(0.5) else name(dice)
        subject = person if kind == "person" and dice.chance(0.7) else drawn
    world = {"past": "past", "future": "future"}.get(world, "habit")
    negated = dice.chance(0.12)
    kind = "person" if subject.kind == "name" else subject.kind
    form = dice.uniform()
    word = german.SEIN
    if (
        kind in ("person", "kin")
        and form < 0.15
        and subject.agreement == "3s"
        and subject.gender != "n"
    ):
        masculine, feminine, readings = dice.pick(PROFESSIONS)
        reading = dice.say(readings.split(","))
        return copula(dice, subject, world=world, negated=False, predicate_words=(
            masculine if subject.gender == "m" else feminine, f"a {reading}"))  # fmt: skip
    if kind in ("person", "kin") and form < 0.27:
        years = 2 + dice.below(90)
        return copula(dice, subject, world=world, negated=False, predicate_words=(
            f"{german.number(years)} Jahre alt",
            f"{english.number(years)} years old" if dice.maybe(0.75) else english.number(years),
        ))  # fmt: skip
    if kind in ("thing", "clothes", "vehicle") and form < 0.25 and subject.noun is not None:
        price = count(dice)
        return replace(
            copula(dice, subject, world=world, negated=False, verb=_COST,
                   predicate_words=(f"{german.number(price)} Euro", f"{spell(dice, price)} euros")),
            tense="preterite" if world == "past" else "present",
        )  # fmt: skip
    if kind in COMPARATIVES and form < 0.4 and subject.noun is not None:
        comparison = dice.pick(COMPARATIVES[kind])
        other = noun_phrase(dice, KINDS[kind], room=0.1, determiners=("der", "dies", "own"))
        return copula(dice, subject, world=world, negated=negated, predicate_words=(
            f"{comparison.german} als {other.german[NOM]}",
            f"{dice.say(comparison.english)} than {other.english}"))  # fmt: skip
    adjective = dice.pick(ADJECTIVES.get(kind, ADJECTIVES["thing"]))
    if kind in ("person", "kin") and form > 0.85:
        moods = tuple(
            option for option in ADJECTIVES["person"]
            if option.german in _MOODS
        )  # fmt: skip
        adjective, word = dice.pick(moods), _BECOME
    # German negates sehr and so, hardly ever ziemlich and wirklich
    degrees = tuple(d for d in DEGREES if d.german in ("sehr", "so")) if negated else DEGREES
    degree = dice.pick(degrees) if dice.chance(0.3) else None
    words = (adjective.german, dice.say(adjective.english))
    if degree is not None:
        words = (f"{degree.german} {words[0]}", f"{dice.say(degree.english)} {words[1]}")
    timed = world != "habit" and dice.chance(0.3)
    moment = time(dice, world, plain=True) if timed else ("", "")
    return copula(dice, subject, world=world, negated=negated, predicate_words=words, verb=word,
                  moment=moment)  # fmt: skip
