"""Pronouns, names and the form of every noun phrase: all German cases beside the English."""

from dataclasses import dataclass, replace

from normlab.data.toy import german
from normlab.data.toy.dice import Dice
from normlab.data.toy.german import Cases
from normlab.data.toy.nouns import Noun
from normlab.data.toy.words import MEN, SURNAMES, WOMEN


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


def speaker(dice: Dice) -> Nominal:
    """Draw a personal pronoun for a person."""
    return dice.weighted(_SPEAKERS)


def someone(dice: Dice) -> Nominal:
    """Draw an indefinite pronoun."""
    forms, words, agreement = SOMEONE[dice.weighted(((0, 3.0), (1, 3.0), (2, 2.0)))]
    return replace(_pronoun(forms, dice.say(words), "3s", agreement, "m", ""), definite=False)


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
                   possessive=("ihr" if word is SIE else "sein", "its"))  # fmt: skip
