"""The sentences of the toy corpus: statements, questions, commands, and how clauses combine.

A sentence draws a number of clauses and builds them into blocks: one clause, a main and a
subordinate clause (either first), a verb with dass, ob or an infinitive. Blocks are then strung
together. Texts carry punctuation as words of their own until `finish` joins them.
"""

import re
from dataclasses import replace

from normlab.data.toy import english
from normlab.data.toy.clauses import to_english, to_german
from normlab.data.toy.complements import asking, infinitive, saying
from normlab.data.toy.dice import Dice
from normlab.data.toy.events import PEOPLE, event, verbs_for
from normlab.data.toy.nominals import Nominal, back_reference, name, speaker
from normlab.data.toy.nouns import KINDS
from normlab.data.toy.phrases import noun_phrase
from normlab.data.toy.questions import Text, command, embedded_question, open_question, yes_no
from normlab.data.toy.statements import statement
from normlab.data.toy.tenses import with_present_perfect

# how many clauses a sentence has
_CLAUSES = ((1, 44.0), (2, 33.0), (3, 12.0), (4, 6.0), (5, 3.0), (6, 1.4), (7, 0.6))
_CONJUNCTIONS = (
    ("weil", ("because", "since", "as"), 5.0),
    ("da", ("since", "as", "because"), 1.5),
    ("obwohl", ("although", "even though", "though"), 3.0),
    ("während", ("while",), 2.0),
    ("wenn", ("when", "if"), 4.0),
    ("sobald", ("as soon as", "once"), 1.5),
    ("bevor", ("before",), 1.5),
    ("nachdem", ("after",), 1.5),
)
_COORDINATIONS = (
    ("und", ("and",), 5.0),
    (", aber", (", but", "but"), 3.0),
    (", denn", (", because", ", for", "because"), 1.5),
    ("oder", ("or",), 0.7),
    (";", (";",), 1.0),
)
_CONNECTIVES = (
    ("; deshalb", (", so", "; therefore ,", ", which is why")),
    (", und dann", ("and then", ", and then")),
    ("; trotzdem", ("; nevertheless ,", "; still ,")),
    ("; danach", ("; after that ,", "; afterwards ,")),
)


def sentence(dice: Dice) -> Text:
    """Draw a sentence pair, punctuated and capitalised."""
    world = "past" if dice.chance(0.5) else dice.weighted(
        (("now", 5.0), ("future", 2.5), ("habit", 1.5), ("since", 1.0))
    )  # fmt: skip
    # the square leaves most sentences short of room and a few with much
    room = 0.12 + 0.88 * dice.uniform() ** 1.6
    clauses = dice.weighted(_CLAUSES)
    if clauses == 1:
        form = dice.uniform()
        if form < 0.1:
            return finish(yes_no(dice, world, room), "?")
        if form < 0.2:
            return finish(open_question(dice, world, room), "?")
        if form < 0.25:
            return finish(command(dice, room), "!" if dice.chance(0.4) else ".")
        clause = with_present_perfect(dice, statement(dice, world, room, None))
        return finish((to_german(clause, "second"), to_english(clause)), ".")
    text, left, topic = _block(dice, world, room, min(clauses, 2 if dice.chance(0.7) else 1))
    left = clauses - left
    while left > 0:
        follow_up = topic if dice.chance(0.55) else None
        text, used, topic = _append(dice, text, world, room, left, follow_up)
        left -= used
    return finish(text, ".")


def finish(text: Text, stop: str) -> Text:
    """Join words and punctuation into a sentence that ends with `stop`."""
    return _punctuate(text[0], stop), english.settle_articles(_punctuate(text[1], stop))


_COMMAS = re.compile(r"(?: ,)+")
_STOPS = re.compile(r",? ([;.?!])")


def _punctuate(text: str, stop: str) -> str:
    joined = _COMMAS.sub(",", " ".join(f"{text} {stop}".split()))
    # the full stop of an abbreviation has no space before it and keeps its place
    joined = _STOPS.sub(r"\1", joined)
    return joined[0].upper() + joined[1:]


def _append(
    dice: Dice, text: Text, world: str, room: float, left: int, topic: Nominal | None
) -> tuple[Text, int, Nominal | None]:
    """String another block to a text."""
    form = dice.uniform()
    if topic is not None and topic.kind in PEOPLE and form < 0.4:
        clause = event(dice, world=world, room=room * 0.8, subject=topic, bare=True, plain=True)
        clause = replace(clause, front="", english_front="")
        return (
            f"{text[0]} und {to_german(clause, 'second', subject=False)}",
            f"{text[1]} and {to_english(clause, subject=False)}",
        ), 1, topic  # fmt: skip
    if form > 0.85:
        word, readings = dice.pick(_CONNECTIVES)
        who = back_reference(topic) if topic is not None else None
        clause = event(dice, world=world, room=room * 0.8, subject=who)
        return (
            f"{text[0]} {to_german(clause, 'second', lead=word)}",
            f"{text[1]} {dice.say(readings)} {to_english(replace(clause, english_front=''))}",
        ), 1, _topic(clause.subject)  # fmt: skip
    word, readings, _ = dice.weighted([(row, row[2]) for row in _COORDINATIONS])
    who = back_reference(topic) if topic is not None else None
    block, used, new_topic = _block(dice, world, room * 0.8, min(left, 2), who)
    reading = dice.say(readings)
    comma = ", " if reading in ("and", "or") and dice.maybe(0.5) else ""
    return (
        (f"{text[0]} {word} {block[0]}", f"{text[1]} {comma}{reading} {block[1]}"),
        used,
        new_topic,
    )


def _block(
    dice: Dice, world: str, room: float, clauses: int, subject: Nominal | None = None
) -> tuple[Text, int, Nominal | None]:
    """Draw a main clause with what depends on it: text, number of clauses used, its subject."""
    if clauses == 1:
        clause = statement(dice, world, room, subject)
        return (to_german(clause, "second"), to_english(clause)), 1, _topic(clause.subject)
    form = dice.weighted((("sub", 45.0), ("that", 25.0), ("infinitive", 18.0), ("ask", 12.0)))
    if form == "sub":
        return (*_subordinate(dice, world, room, subject),)
    who = subject if subject is not None and subject.kind in PEOPLE else _person(dice)
    now = "past" if world == "past" else "now"
    if form == "that":
        main, inner_world = saying(dice, who, now), world
        inner = statement(dice, inner_world, room * 0.8, None)
        lead = "that " if dice.maybe(0.55) else ""
        main = replace(main, tail=(
            f", {to_german(inner, 'last', lead='dass')} ,",
            f"{lead}{to_english(replace(inner, english_front=''))}",
        ))  # fmt: skip
    elif form == "ask":
        main = asking(dice, who, now)
        inner = event(dice, world=world, room=room * 0.8)
        german_text, english_text = embedded_question(dice, inner)
        main = replace(main, tail=(f", {german_text} ,", english_text))
    else:
        main = infinitive(dice, who, now, room)
    return (to_german(main, "second"), to_english(main)), 2, _topic(who)


def _topic(subject: Nominal) -> Nominal | None:
    """Return a subject that a later clause can take up, or None."""
    impersonal = subject.pronoun and subject.possessive is None
    return None if impersonal or not verbs_for(subject.kind) else subject


def _person(dice: Dice) -> Nominal:
    form = dice.uniform()
    if form < 0.4:
        return speaker(dice)
    if form < 0.6:
        return name(dice)
    return noun_phrase(dice, (*KINDS["person"], *KINDS["kin"]), room=0.2,
                       determiners=("der", "own", "dies", "ein"))  # fmt: skip


def _subordinate(
    dice: Dice, world: str, room: float, subject: Nominal | None
) -> tuple[Text, int, Nominal | None]:
    """Draw a main clause with an adverbial clause, in either order."""
    word, readings, _ = dice.weighted([(row, row[2]) for row in _CONJUNCTIONS])
    main = statement(dice, world, room * 0.8, subject)
    first = dice.chance(0.35) and word != "da"
    same = dice.chance(0.5)
    topic = _topic(main.subject)
    who = back_reference(topic) if topic is not None and same else None
    inner_world = world if world in ("past", "now", "habit") else "now"
    if word in ("weil", "da", "obwohl"):
        inner = statement(dice, inner_world, room * 0.8, who)
    else:
        if word == "wenn" and world == "past":
            word, readings = "als", ("when", "as")
        if word == "nachdem":
            inner_world = "before-past" if world == "past" else "before"
        elif world != "past":
            inner_world = "habit"
        inner = event(dice, world=inner_world, room=room * 0.7, subject=who, plain=True, bare=True)
    reading = dice.say(readings)
    inner = replace(inner, english_front="")
    german_inner = to_german(inner, "last", lead=word)
    if first:
        english_inner = to_english(inner, lead=reading)
        return (
            to_german(main, "second", lead=f"{german_inner} ,"),
            f"{english_inner} , {to_english(replace(main, english_front=''))}",
        ), 2, topic  # fmt: skip
    comma = (
        " ,"
        if reading in ("although", "even though", "though", "while") and dice.maybe(0.4)
        else ""
    )
    return (
        f"{to_german(main, 'second')} , {german_inner} ,",
        f"{to_english(main)}{comma} {to_english(inner, lead=reading)}",
    ), 2, topic  # fmt: skip
