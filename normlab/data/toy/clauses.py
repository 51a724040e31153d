"""A clause as a meaning, and its word orders in German and English.

German order: the finite verb is second in a main clause, first in a yes-no question, last in a
subordinate clause; participles, infinitives and separated prefixes close the clause. Between them
stands the middle field in the order of `_MIDDLE`, with `nicht` before what it negates.
English order: subject, verb, objects, then adverbials in the order of `_ENGLISH`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from normlab.data.toy import english, german
from normlab.data.toy.listing import listing
from normlab.data.toy.nominals import Nominal
from normlab.data.toy.verbs import Verb

Order = Literal["second", "first", "last"]

_MIDDLE: Mapping[str, int] = MappingProxyType(
    {
        role: rank
        for rank, role in enumerate(
            listing(
                """
    pronoun reflexive time cause frequency dative object nicht with manner means agent
    place indefinite fixed prepositional predicate goal hidden
"""
            )
        )
    }
)
# English puts a particle after its object while that has no more words than this.
_LIGHT = 4
_ENGLISH = listing(
    """
    predicate prepositional goal agent means with manner place time cause
"""
)


@dataclass(frozen=True)
class Part:
    """A constituent of a clause besides subject and verb.

    `role` decides where it stands in German, and in English unless `english_role` does; `hidden`
    and `none` stand for a part that only the other language has. `nominal` is its noun phrase.
    """

    role: str
    german: str
    english: str
    english_role: str = ""
    nominal: Nominal | None = None

    @property
    def place_in_english(self) -> str:
        """Return the role that decides the place in English."""
        return self.english_role or self.role


@dataclass(frozen=True)
class Predicate:
    """The English verb: its finite word, what follows, and the particle an object may precede."""

    head: str
    tense: str
    rest: str
    particle: str


@dataclass(frozen=True)
class Clause:
    """A clause in both languages, every choice made but the word order."""

    subject: Nominal
    english_subject: Nominal
    verb: Verb
    tense: str
    modal: str
    reading: str
    predicate: Predicate
    parts: tuple[Part, ...]
    nicht: bool
    english_not: bool
    front: str
    english_front: str
    contracted: bool
    dative_first: bool
    particle_last: bool
    manner_early: bool
    tail: tuple[str, str]

    def part(self, role: str) -> Part | None:
        """Return the first part with a role in the German clause."""
        return next((part for part in self.parts if part.role == role), None)


def predicate(reading: str, form: str, modal_reading: str) -> Predicate:
    """Build an English predicate from a verb reading and the name of its form."""
    words, _, particle = reading.partition("~")
    be = words.split(" ")[0] == "be"
    if form in ("present", "past"):
        head, _, rest = words.partition(" ") if be else (words, "", "")
        return Predicate(head, form, rest, particle)
    if form == "modal present" or form == "modal past":
        head, _, to = modal_reading.partition(" ")
        return Predicate(head, form.removeprefix("modal "), f"{to} {words}".strip(), particle)
    head, tense, rest = {
        "progressive": ("be", "present", "{ing}"),
        "past progressive": ("be", "past", "{ing}"),
        "perfect": ("have*", "present", "{ed}"),
        "perfect progressive": ("have*", "present", "been {ing}"),
        "pluperfect": ("have*", "past", "{ed}"),
        "will": ("will", "present", "{base}"),
        "going": ("be", "present", "going to {base}"),
        "would": ("would", "present", "{base}"),
        "passive": ("be", "present", "{ed}"),
        "passive past": ("be", "past", "{ed}"),
        "like doing": ("like", "present", "{ing}"),
        "like to do": ("like", "present", "to {base}"),
        "enjoy doing": ("enjoy", "present", "{ing}"),
    }[form]
    forms = {"ing": english.gerund(words), "ed": english.participle(words), "base": words}
    return Predicate(head, tense, rest.format(**forms), particle)


def _verb_words(clause: Clause) -> tuple[str, str]:
    """Return the finite verb without a prefix, and what closes the clause."""
    verb, agreement = clause.verb, clause.subject.agreement
    if clause.tense in ("present", "preterite"):
        if clause.modal:
            return german.modal(clause.modal, clause.tense, agreement), verb.infinitive
        return german.finite(verb, clause.tense, agreement), verb.prefix
    if clause.tense in ("perfect", "pluperfect"):
        auxiliary = german.SEIN if verb.auxiliary == "sein" else german.HABEN
        tense = "present" if clause.tense == "perfect" else "preterite"
        return german.finite(auxiliary, tense, agreement), verb.participle
    if clause.tense == "would":
        return german.modal("würden", "present", agreement), verb.infinitive
    if clause.tense == "future":
        return german.finite(german.WERDEN, "present", agreement), verb.infinitive
    tense = "preterite" if clause.tense == "passive past" else "present"
    return german.finite(german.WERDEN, tense, agreement), verb.participle


def middle_field(clause: Clause, *, without: Part | None = None) -> list[str]:
    """Return the middle field of a clause in order, the reflexive pronoun and nicht included."""
    ranked = [(_MIDDLE[part.role], part.german) for part in clause.parts if part is not without]
    verb = clause.verb
    if verb.reflexive:
        ranked.append((_MIDDLE["reflexive"], german.reflexive(clause.subject.agreement)))
    if verb.fixed:
        plain = not (clause.english_not and verb.fixed_negative != "nicht")
        ranked.append((_MIDDLE["fixed"], verb.fixed if plain else verb.fixed_negative))
    if clause.nicht:
        ranked.append((_MIDDLE["nicht"], "nicht"))
    return [text for _, text in sorted(ranked, key=lambda item: item[0])]


def to_german(clause: Clause, order: Order, *, lead: str = "", subject: bool = True) -> str:
    """Put a clause into German words; commas are words of their own.

    `lead` opens the clause: in the order `second` it takes the first place (a question word, a
    subordinate clause), in `last` it is the conjunction or relative pronoun.
    """
    finite, closing = _verb_words(clause)
    who = clause.subject.german[0] if subject else ""
    front = clause.part(clause.front) if order == "second" and clause.front and not lead else None
    middle = middle_field(clause, without=front)
    if order == "last":
        separated = clause.verb.prefix and closing == clause.verb.prefix
        ending = [closing + finite] if separated else [closing, finite]
        words = [lead, who, *middle, *ending]
    elif order == "first":
        words = [lead, finite, who, *middle, closing]
    elif front is not None:
        words = [front.german, finite, who, *middle, closing]
    elif lead:
        words = [lead, finite, who, *middle, closing]
    else:
        words = [who, finite, *middle, closing]
    return " ".join(word for word in (*words, clause.tail[0]) if word)


def german_infinitive(clause: Clause) -> str:
    """Put a clause into German words as an infinitive with zu, without its subject."""
    words = [*middle_field(clause), clause.verb.zu_infinitive, clause.tail[0]]
    return " ".join(word for word in words if word)


def _complements(clause: Clause) -> list[str]:
    """Return what follows the English verb: particle, objects, adverbials but the fronted one."""
    by_role: dict[str, list[str]] = {}
    for part in clause.parts:
        by_role.setdefault(part.place_in_english, []).append(part.english)
    direct = by_role.get("object", [""])[0]
    particle = clause.predicate.particle
    words: list[str] = []
    is_pronoun = any(
        part.place_in_english == "object" and part.nominal is not None and part.nominal.pronoun
        for part in clause.parts
    )
    light = len(direct.split()) <= _LIGHT
    turned = particle and direct and (is_pronoun or (clause.particle_last and light))
    direct = f"{direct} {particle}" if turned else f"{particle} {direct}".strip()
    if "dative" in by_role:
        indirect = by_role["dative"][0]
        if clause.dative_first and indirect and direct and not is_pronoun:
            words += [indirect, direct]
        else:
            words += [direct, f"to {indirect}".strip()]
    else:
        words.append(direct)
    order = list(_ENGLISH)
    if clause.manner_early:
        order.remove("manner")
        order.insert(1, "manner")
    for role in order:
        if role != clause.english_front:
            words += by_role.get(role, [])
    return [word for word in words if word]


def to_english(
    clause: Clause, *, lead: str = "", question: bool = False, subject: bool = True
) -> str:
    """Put a clause into English words; commas are words of their own.

    `question` inverts subject and auxiliary, with do where there is none. Without `subject`, the
    clause goes on from an earlier one.
    """
    verb = clause.predicate
    who = clause.english_subject.english if subject else ""
    agreement = clause.english_subject.english_agreement
    often = clause.part("frequency")
    adverb = often.english if often is not None else ""
    auxiliary = verb.head in english.AUXILIARIES
    finite = english.inflect(verb.head, verb.tense, agreement)
    rest = verb.rest
    if not auxiliary and (question or clause.english_not):
        finite = english.inflect("do", verb.tense, agreement)
        rest = f"{verb.head} {rest}".strip()
        auxiliary = True
    words: list[str]
    if question and clause.english_not:
        short = clause.contracted and finite not in ("am", "may")
        words = [english.negate(finite, contract=True), who] if short else [finite, who, "not"]
        words += [rest]
    elif question:
        words = [finite, who, adverb, rest]
    elif clause.english_not:
        if finite == "am" and clause.contracted and who:
            words = [english.contract(who, finite), "not", rest]
        else:
            words = [who, english.negate(finite, contract=clause.contracted), rest]
    elif auxiliary:
        short = clause.contracted and who
        words = [
            english.contract(who, finite) if short else f"{who} {finite}".strip(),
            adverb,
            rest,
        ]
    else:
        words = [who, adverb, finite, rest]
    front = [
        f"{part.english} ,"
        for part in clause.parts
        if part.role == clause.english_front and not lead and subject and not question
    ]
    late = [
        part.english for part in clause.parts if part.role == clause.english_front and not front
    ]
    return " ".join(
        word
        for word in (lead, *front, *words, *_complements(clause), *late, clause.tail[1])
        if word
    )


def english_infinitive(clause: Clause, form: Literal["to", "ing"]) -> str:
    """Put a clause into English words as an infinitive or gerund, without its subject."""
    words, _, _ = clause.reading.partition("~")
    head = f"to {words}" if form == "to" else english.gerund(words)
    negation = "not" if clause.english_not else ""
    parts = [negation, head, *_complements(clause), clause.tail[1]]
    return " ".join(word for word in parts if word)
