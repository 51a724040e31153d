"""Questions and commands."""

from dataclasses import replace

from normlab.data.toy import german
from normlab.data.toy.clauses import Clause, english_infinitive, to_english, to_german
from normlab.data.toy.dice import Dice
from normlab.data.toy.events import PEOPLE, event
from normlab.data.toy.german import imperative
from normlab.data.toy.nominals import DU, ES, FORMAL, IHR
from normlab.data.toy.statements import statement
from normlab.data.toy.tenses import with_present_perfect

Text = tuple[str, str]


def yes_no(dice: Dice, world: str, room: float) -> Text:
    """Draw a question that opens with the finite verb."""
    clause = with_present_perfect(dice, statement(dice, world, room, None))
    return to_german(clause, "first"), to_english(clause, question=True)


_QUESTION_WORDS = {
    "time": ("wann", "when"), "place": ("wo", "where"), "goal": ("wohin", "where"),
    "manner": ("wie", "how"), "means": ("wie", "how"), "cause": ("warum", "why"),
}  # fmt: skip


def _ask_for(dice: Dice, clause: Clause) -> tuple[Clause, str, str, bool]:
    """Take a constituent out: the rest, both question words, whether it was the subject."""
    if clause.verb.frame != "swap" and dice.chance(0.15) and clause.subject.kind in PEOPLE:
        who = replace(
            ES, german=("wer", "wen", "wem", ""), english="who", english_object="who",
            kind="name", possessive=None,
        )  # fmt: skip
        if not clause.verb.reflexive and not clause.nicht and clause.tense != "passive":
            plain = replace(clause, subject=who, english_subject=who, contracted=False, front="")
            return plain, "", "", True
    for part in clause.parts:
        rest = replace(clause, parts=tuple(p for p in clause.parts if p is not part), front="")
        rest = replace(rest, english_front="")
        if part.role in _QUESTION_WORDS and part.german != "gern":
            return rest, *_QUESTION_WORDS[part.role], False
        if (
            part.role in ("object", "indefinite")
            and part.nominal is not None
            and not clause.english_not
        ):
            person = part.nominal.kind in ("person", "kin", "name")
            dative = clause.verb.frame == "D"
            if person or not dative:
                word = ("wem" if dative else "wen") if person else "was"
                return rest, word, "who" if person else "what", False
    plain = replace(clause, front="", english_front="")
    return plain, "warum", "why", False


def open_question(dice: Dice, world: str, room: float) -> Text:
    """Draw a question with a question word."""
    clause, word, reading, of_subject = _ask_for(dice, event(dice, world=world, room=room))
    if of_subject:
        return to_german(clause, "second"), to_english(replace(clause, english_front=""))
    return (
        to_german(clause, "second", lead=word),
        to_english(clause, lead=reading, question=True),
    )


def embedded_question(dice: Dice, clause: Clause) -> Text:
    """Draw an indirect question with ob or a question word."""
    whether = dice.say(("whether", "if"))
    if dice.chance(0.5):
        plain = replace(clause, english_front="")
        return to_german(plain, "last", lead="ob"), to_english(plain, lead=whether)
    rest, word, reading, of_subject = _ask_for(dice, clause)
    if of_subject:
        return to_german(rest, "last"), to_english(replace(rest, english_front=""))
    return to_german(rest, "last", lead=word), to_english(rest, lead=reading)


def command(dice: Dice, room: float) -> Text:
    """Draw a command to one person, to several, or to a stranger."""
    who = dice.weighted(((DU, 4.0), (FORMAL, 4.0), (IHR, 1.0)))
    while True:
        clause = event(dice, world="habit", room=room * 0.6, subject=who, plain=True, bare=True)
        if "s" not in clause.verb.flags:
            break
    please = dice.chance(0.5)
    clause = replace(clause, english_front="", front="")
    if who is FORMAL:
        text = to_german(clause, "first")
        if please:
            text = text.replace(" Sie ", " Sie bitte ", 1)
    else:
        spoken = imperative(clause.verb) if who is DU else german.finite(
            clause.verb, "present", "2p")  # fmt: skip
        start = german.finite(clause.verb, "present", who.agreement)
        rest = to_german(clause, "first", subject=False).removeprefix(start)
        text = f"{spoken}{' bitte' if please else ''}{rest}"
    words = english_infinitive(clause, "to").removeprefix("to ")
    if please:
        words = f"please {words}" if dice.maybe(0.7) else f"{words} , please"
    return text, words
