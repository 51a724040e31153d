"""From what a clause says to a clause: tenses in both languages, fronting, options of wording."""

from collections.abc import Sequence
from dataclasses import replace

from normlab.data.toy import german
from normlab.data.toy.clauses import Clause, Part, predicate
from normlab.data.toy.dice import Dice
from normlab.data.toy.nominals import Nominal
from normlab.data.toy.verbs import Verb

# readings of the modals: present, past, present negated
_MODAL_READINGS = {
    "können": (("can", "be able to"), ("could", "be able to"), ("can", "be able to")),
    "müssen": (("have to", "must", "need to"), ("have to",), ("have to", "need to")),
    "wollen": (("want to",),) * 3,
    "sollen": (("should", "be supposed to"), ("be supposed to",), ("should", "be supposed to")),
    "dürfen": (("be allowed to", "may", "can"), ("be allowed to",), ("be allowed to", "may")),
    "möchten": (("would like to", "want to"),) * 3,
}


def finish_clause(
    dice: Dice,
    *,
    verb: Verb,
    subject: Nominal,
    english_subject: Nominal,
    parts: tuple[Part, ...],
    world: str,
    modal: str,
    moment: str,
    negated: bool,
    kein: bool,
    may_front: bool,
) -> Clause:
    """Choose tenses, fronting and the options of wording."""
    tense, form = _tenses(
        dice, verb, world=world, moment=moment, modal=modal, agreement=subject.agreement,
        negated=negated, frequent=any(part.role == "frequency" for part in parts),
    )  # fmt: skip
    reading = dice.say(verb.english)
    column = 1 if tense == "preterite" else 2 if negated else 0
    modal_reading = dice.say(_MODAL_READINGS[modal][column]) if modal else ""
    front = _front(dice, parts, subject, verb) if may_front else ""
    movable = front if front in ("time", "cause") else "time" if moment else ""
    fixed_negation = bool(verb.fixed_negative) and verb.fixed_negative != "nicht"
    no = kein and not dice.maybe(0.75)
    if no:
        parts = tuple(
            replace(part, english="no " + part.english.split(" ", 1)[1])
            if part.place_in_english == "object" else part
            for part in parts
        )  # fmt: skip
    return Clause(
        subject=subject,
        english_subject=english_subject,
        verb=verb,
        tense=tense,
        modal=modal,
        reading=reading,
        predicate=predicate(reading, form, modal_reading),
        parts=parts,
        nicht=negated and not kein and not fixed_negation,
        english_not=negated and not no,
        front=front,
        english_front=movable if movable and dice.maybe(0.6 if movable == front else 0.12) else "",
        contracted=dice.maybe(0.6),
        dative_first="t" not in verb.flags and dice.maybe(0.6),
        particle_last=dice.maybe(0.4),
        manner_early=dice.maybe(0.35),
        tail=("", ""),
    )


def _front(dice: Dice, parts: Sequence[Part], subject: Nominal, verb: Verb) -> str:
    """Choose what stands before the finite verb instead of the subject."""
    weights = {
        "time": 0.4,
        "cause": 0.35,
        "frequency": 0.25,
        "object": 0.12,
        "place": 0.1,
        "dative": 0.1,
    }
    if verb.frame == "swap":
        weights["dative"] = 0.45
    for part in parts:
        draw = dice.uniform()
        if not part.german or draw >= weights.get(part.role, 0.0):
            continue
        if part.role == "frequency" and part.german in ("nie", "immer", "oft", "selten"):
            continue
        # without a visible case, an object in front would read as the subject
        if part.role == "object" and not (
            part.nominal is not None and part.nominal.singular_masculine and verb.frame != "D"
        ):
            continue
        if part.role == "dative" and part.nominal is not None and part.nominal.kind == "name":
            continue
        return part.role
    return ""


def _tenses(
    dice: Dice,
    verb: Verb,
    *,
    world: str,
    moment: str,
    modal: str,
    agreement: str,
    negated: bool,
    frequent: bool,
) -> tuple[str, str]:
    """Choose the German tense and the English form for a world."""
    stative, lasting = "s" in verb.flags, "d" in verb.flags
    draw = dice.uniform()
    if world == "future" and not moment and draw < 0.55:
        # nothing in the German says that it is the future
        world = "now"
    if modal:
        return ("preterite", "modal past") if world == "past" else ("present", "modal present")
    if world == "past":
        simple = "p" in verb.flags or (draw < 0.4 and agreement not in ("2s", "2p"))
        if simple:
            slow = lasting and not stative and not frequent and not negated and dice.maybe(0.15)
            return "preterite", "past progressive" if slow else "past"
        return "perfect", "past"
    if world == "before-past":
        return "pluperfect", "pluperfect" if dice.maybe(0.7) else "past"
    if world == "before":
        return ("present", "present") if "p" in verb.flags else ("perfect", "perfect")
    if world == "liking":
        return "present", dice.say(("like doing", "like to do", "enjoy doing"))
    if world == "since":
        slow = not stative and dice.maybe(0.6)
        return "present", "perfect progressive" if slow else "perfect"
    if world == "habit":
        return "present", "present"
    if world == "future":
        tense = "present" if draw < 0.55 else "future"
        options = ["will", "going"]
        if tense == "present" and not stative:
            options.append("progressive")
        return tense, dice.say(options)
    if stative:
        return "present", "present"
    current = moment in ("gerade", "im Moment", "jetzt")
    return "present", "progressive" if current or dice.maybe(0.6) else "present"


def copula(
    dice: Dice,
    subject: Nominal,
    *,
    world: str,
    predicate_words: tuple[str, str],
    negated: bool,
    verb: Verb = german.SEIN,
    moment: tuple[str, str] = ("", ""),
) -> Clause:
    """Build a clause of sein or werden with a predicate given in both languages."""
    parts = (Part("predicate", *predicate_words),)
    if moment[0]:
        parts = (Part("time", *moment), *parts)
    return finish_clause(
        dice, verb=verb, subject=subject, english_subject=subject, parts=parts, world=world,
        modal="", moment=moment[0], negated=negated, kein=False, may_front=True,
    )  # fmt: skip


def with_present_perfect(dice: Dice, clause: Clause) -> Clause:
    """Word a Perfekt without a time as the English present perfect, sometimes.

    For sentences of one clause: in a sequence of events English keeps to the simple past.
    """
    timeless = clause.tense == "perfect" and clause.part("time") is None
    if not timeless or not dice.maybe(0.35):
        return clause
    return replace(clause, predicate=predicate(clause.reading, "perfect", ""))
