"""German inflection: articles, adjectives, nouns, verbs, numbers.

Forms are tables in the order of `CASES`; a plural is the fourth gender, `p`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from normlab.data.toy.listing import listing
from normlab.data.toy.nouns import Noun
from normlab.data.toy.verbs import Verb, needs_e, stem, verb

Cases = tuple[str, str, str, str]
CASES = ("nominative", "accusative", "dative", "genitive")
NOM, ACC, DAT, GEN = range(4)


def _table(**rows: str) -> Mapping[str, Cases]:
    def cases(row: str) -> Cases:
        nominative, accusative, dative, genitive = (
            "" if cell == "-" else cell for cell in row.split()
        )
        return (nominative, accusative, dative, genitive)

    return MappingProxyType({gender: cases(row) for gender, row in rows.items()})


DEFINITE = _table(
    m="der den dem des", f="die die der der", n="das das dem des", p="die die den der"
)
RELATIVE = _table(
    m="der den dem dessen", f="die die der deren", n="das das dem dessen", p="die die denen deren"
)
# endings of ein, kein, mein; of dieser, jeder, welcher
_EIN = _table(m="- en em es", f="e e er er", n="- - em es", p="e e en er")
_DIESER = _table(m="er en em es", f="e e er er", n="es es em es", p="e e en er")
_ADJECTIVE = {
    "weak": _table(m="e en en en", f="e e en en", n="e e en en", p="en en en en"),
    "mixed": _table(m="er en en en", f="e e en en", n="es es en en", p="en en en en"),
    "strong": _table(m="er en em en", f="e e er er", n="es es em en", p="e e en er"),
}
# Words like der take a weak adjective, words like ein a mixed one, everything else a strong one.
_LIKE_DIESER = ("dies", "jed", "welch", "all")
_LIKE_EIN = ("ein", "kein", "mein", "dein", "sein", "ihr", "unser", "euer", "Ihr")

_CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "an das": "ans",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
    "bei dem": "beim",
}

# reflexive pronouns by person and number, accusative
_REFLEXIVES = {"1s": "mich", "2s": "dich", "1p": "uns", "2p": "euch"}


def determine(word: str, gender: str) -> Cases:
    """Inflect a determiner given by its stem (`der`, `ein`, `dies`, ...) for a gender."""
    if word == "der":
        return DEFINITE[gender]
    if word in _LIKE_EIN:
        # euer drops its inner e before an ending: eure, eurem
        base = "eur" if word == "euer" else word
        a, b, c, d = (base + ending if ending else word for ending in _EIN[gender])
        return (a, b, c, d)
    if word in _LIKE_DIESER or word in ("viel", "einig", "mehrer", "wenig"):
        a, b, c, d = (word + ending for ending in _DIESER[gender])
        return (a, b, c, d)
    return (word, word, word, word)


def adjective(word: str, determiner: str, gender: str) -> Cases:
    """Inflect an attributive adjective after a determiner (its stem, or "" for none)."""
    if determiner == "der" or determiner in _LIKE_DIESER:
        declension = "weak"
    elif determiner in _LIKE_EIN:
        declension = "mixed"
    else:
        declension = "strong"
    base = {"teuer": "teur", "dunkel": "dunkl", "hoch": "hoh"}.get(word, word.removesuffix("e"))
    a, b, c, d = (base + ending for ending in _ADJECTIVE[declension][gender])
    return (a, b, c, d)


def decline(noun: Noun, *, plural: bool) -> Cases:
    """Inflect a noun for case."""
    if plural:
        form = noun.plural
        dative = form if form.endswith(("n", "s")) else form + "n"
        return (form, form, dative, form)
    lemma = noun.lemma
    if noun.weak:
        # the oblique singular of every weak noun of the lexicon sounds like its plural
        return (lemma, noun.plural, noun.plural, noun.plural)
    return (lemma, lemma, lemma, lemma if noun.gender == "f" else _genitive(lemma))


def _genitive(lemma: str) -> str:
    if lemma.endswith("nis"):
        return lemma + "ses"
    if lemma == "Bus":
        return "Busses"
    if lemma.endswith(("s", "ß", "x", "z")):
        return lemma + "es"
    syllables = sum(
        1
        for before, letter in zip(" " + lemma.lower(), lemma.lower() + " ", strict=True)
        if letter in "aeiouyäöü" and before not in "aeiouyäöü"
    )
    short = (
        syllables == 1 and lemma[-1] not in "aeiouäöüy" and lemma not in ("Chef", "Film", "Park")
    )
    return lemma + ("es" if short else "s")


def prepositional(preposition: str, phrase: str, *, contract: bool = True) -> str:
    """Put a preposition before a phrase, contracting it with a plain article (im, zur)."""
    article, _, rest = phrase.partition(" ")
    short = _CONTRACTIONS.get(f"{preposition} {article}") if contract and rest else None
    return f"{short} {rest}" if short else f"{preposition} {phrase}"


def reflexive(agreement: str) -> str:
    """Return the accusative reflexive pronoun for an agreement such as `1s` or `3p`."""
    return _REFLEXIVES.get(agreement, "sich")


SEIN = verb("sein ist war *gewesen", "be", flags="sp")
WERDEN = verb("werden wird wurde *geworden", "become")
HABEN = verb("haben hat hatte gehabt", "have", flags="sp")
WISSEN = verb("wissen weiß wusste gewusst", "know", flags="sp")

_IRREGULAR = {
    "sein": dict(zip(("1s", "2s", "3s", "1p", "2p", "3p"), listing("bin bist ist sind seid sind"),
                     strict=True)),
    "haben": {"2s": "hast"},
    "werden": {"2s": "wirst"},
    "wissen": {"1s": "weiß", "2s": "weißt"},
    "halten": {"2s": "hältst"},
    "laden": {"2s": "lädst"},
}  # fmt: skip
_MODALS = {
    "können": ("kann", "konnte"),
    "müssen": ("muss", "musste"),
    "wollen": ("will", "wollte"),
    "sollen": ("soll", "sollte"),
    "dürfen": ("darf", "durfte"),
}


def modal(infinitive: str, tense: str, agreement: str) -> str:
    """Conjugate a modal verb, `möchten` included, in `present` or `preterite`."""
    if infinitive in ("möchten", "würden"):
        return _past(infinitive.removesuffix("n"), agreement)
    present, preterite = _MODALS[infinitive]
    if tense == "preterite":
        return _past(preterite, agreement)
    if agreement in ("1s", "3s"):
        return present
    if agreement == "2s":
        return present + ("t" if present.endswith("s") else "st")
    return infinitive[:-2] + "t" if agreement == "2p" else infinitive


def finite(word: Verb, tense: str, agreement: str) -> str:
    """Conjugate a verb without its prefix in `present` or `preterite`."""
    if tense == "preterite":
        return _past(word.preterite, agreement)
    infinitive = word.stem_verb
    irregular = _IRREGULAR.get(infinitive, {})
    if agreement in irregular:
        return irregular[agreement]
    if agreement == "3s":
        return word.third
    if agreement in ("1p", "3p"):
        return infinitive
    base = stem(infinitive)
    link = "e" if needs_e(base) else ""
    if agreement == "1s":
        return (base[:-2] + "l" if infinitive.endswith("eln") else base) + "e"
    if agreement == "2p":
        return base + link + "t"
    # du takes its vowel from the third person: er sieht, du siehst
    changed = word.third.removesuffix("t") if word.third != base + link + "t" else base + link
    return changed + ("t" if changed.endswith(("s", "ß", "z", "x")) else "st")


def _past(form: str, agreement: str) -> str:
    weak = form.endswith("e")
    if agreement in ("1s", "3s"):
        return form
    if agreement in ("1p", "3p"):
        return form + ("n" if weak else "en")
    link = "e" if not weak and form[-1] in "tdsßz" else ""
    return form + link + ("st" if agreement == "2s" else "t")


def imperative(word: Verb) -> str:
    """Return the imperative to a person addressed as du, without the prefix."""
    base = stem(word.stem_verb)
    third = word.third.removesuffix("t")
    if "e" in base and "i" in third and "i" not in base:
        return third
    if word.stem_verb.endswith(("eln", "ern")):
        return finite(word, "present", "1s")
    return base + ("e" if needs_e(base) else "")


_UNITS = listing(
    """
    null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn
    vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn
"""
)
_TENS = listing(
    """
    - - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig
"""
)


def number(value: int, *, inner: bool = False) -> str:
    """Spell a number below ten thousand; `inner` is the form before a noun or part (ein)."""
    if value < 20:
        return "ein" if value == 1 and inner else _UNITS[value]
    if value < 100:
        tens, unit = divmod(value, 10)
        return (number(unit, inner=True) + "und" if unit else "") + _TENS[tens]
    scale, word = (1000, "tausend") if value >= 1000 else (100, "hundert")
    head, rest = divmod(value, scale)
    front = number(head, inner=True) if head > 1 else ""
    return front + word + (number(rest, inner=inner) if rest else "")
