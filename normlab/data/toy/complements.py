"""Clauses that end in another: with dass, with a question, with an infinitive."""

from dataclasses import replace

from normlab.data.toy.clauses import Clause, english_infinitive, german_infinitive
from normlab.data.toy.dice import Dice
from normlab.data.toy.events import event
from normlab.data.toy.nominals import ES, Nominal
from normlab.data.toy.tenses import copula
from normlab.data.toy.verbs import Verb, verb

_OPINIONS = (
    ("wichtig", ("important",)), ("schön", ("nice", "great")), ("schade", ("a pity", "too bad")),
    ("möglich", ("possible",)), ("klar", ("clear", "obvious")), ("seltsam", ("strange", "odd")),
)  # fmt: skip
_FEELINGS = (
    ("sicher", ("sure", "certain")), ("froh", ("glad", "happy")), ("traurig", ("sad",)),
    ("überrascht", ("surprised",)), ("überzeugt", ("convinced",)),
)  # fmt: skip
_SAYING = (
    verb("sagen", "say", flags="s"),
    verb("glauben", "think,believe", flags="s"),
    verb("denken denkt dachte gedacht", "think", flags="s"),
    verb("meinen", "think", flags="s"),
    verb("wissen weiß wusste gewusst", "know", flags="sp"),
    verb("hoffen", "hope", flags="s"),
    verb("behaupten", "claim", flags="s"),
    verb("hören", "hear", flags="s"),
    verb("erzählen", "say", flags="s"),
    verb("vergessen vergisst vergaß vergessen", "forget", flags="s"),
)
_ASKING = (verb("fragen", "ask", flags="s"), verb("wissen weiß wusste gewusst", "know", flags="sp"))
_TRYING = (
    verb("versuchen", "try"), verb("vergessen vergisst vergaß vergessen", "forget", flags="s"),
    verb("hoffen", "hope", flags="s"), verb("planen", "plan"),
    verb("beschließen beschließt beschloss beschlossen", "decide", flags="s"),
    verb("versprechen verspricht versprach versprochen", "promise", flags="s"),
    verb("sich weigern", "refuse", flags="s"),
    verb("beginnen beginnt begann begonnen", "begin,start"),
    verb("an+fangen fängt fing gefangen", "start,begin"),
)  # fmt: skip
_STOPPING = (
    verb("auf+hören", "stop", flags="s"),
    verb("(Lust/keine_Lust)haben hat hatte gehabt", "feel_like", flags="sp"),
    verb("sich freuen", "be_happy_about,be_glad_about", flags="s"),
)
_PURPOSES = (
    "in_die_Stadt gehen/go into town,go to town", "nach_Hause kommen/come home",
    "zum_Markt gehen/go to the market", "in_die_Küche gehen/go to the kitchen,go into the kitchen",
    "nach_Berlin fahren/drive to Berlin,go to Berlin", "zum_Bahnhof laufen/run to the station",
    "ins_Büro fahren/drive to the office,go to the office",
)  # fmt: skip
_MOTION = {
    "gehen": "gehen geht ging *gegangen", "kommen": "kommen kommt kam *gekommen",
    "fahren": "fahren fährt fuhr *gefahren", "laufen": "laufen läuft lief *gelaufen",
}  # fmt: skip


_WONDERING = verb("sich fragen", "wonder", flags="s")


def saying(dice: Dice, who: Nominal, world: str) -> Clause:
    """Draw the main clause before dass."""
    form = dice.uniform()
    if form < 0.2:
        word, readings = dice.pick(_OPINIONS)
        return copula(dice, ES, world="past" if world == "past" else "habit", negated=False,
                      predicate_words=(word, dice.say(readings)))  # fmt: skip
    if form < 0.4:
        word, readings = dice.pick(_FEELINGS)
        return copula(dice, who, world="past" if world == "past" else "habit", negated=False,
                      predicate_words=(word, dice.say(readings)))  # fmt: skip
    return _bare(dice, dice.pick(_SAYING), who, world, negated=False)


def _bare(dice: Dice, word: Verb, who: Nominal, world: str, *, negated: bool) -> Clause:
    """Build a clause of subject and verb alone, for a clause or infinitive to hang on."""
    clause = copula(dice, who, world=world, negated=negated, verb=word, predicate_words=("", ""))
    return replace(clause, parts=())


def asking(dice: Dice, who: Nominal, world: str) -> Clause:
    """Draw the main clause before an indirect question."""
    word = dice.pick(_ASKING)
    knows = word.stem_verb == "wissen"
    clause = _bare(dice, word, who, world, negated=knows)
    if knows or dice.chance(0.5):
        return clause
    return _bare(dice, _WONDERING, who, world, negated=False)


def infinitive(dice: Dice, who: Nominal, world: str, room: float) -> Clause:
    """Draw a clause that ends in an infinitive with zu."""
    inner = event(dice, world="habit", room=room * 0.8, subject=who, plain=True, bare=True)
    form = dice.uniform()
    phrase = german_infinitive(inner)
    if form < 0.3:
        goal, motions = dice.pick(_PURPOSES).split("/")
        where, word = goal.split()
        moving = verb(_MOTION[word], motions.replace(" ", "_"))
        clause = copula(dice, who, world=world, negated=False, verb=moving,
                        predicate_words=(where.replace("_", " "), ""))  # fmt: skip
        lead = dice.say(("", "in order "))
        return replace(clause, tail=(f", um {phrase} ,", lead + english_infinitive(inner, "to")))
    if form < 0.5:
        word = dice.pick(_STOPPING)
        clause = _bare(dice, word, who, world, negated=dice.chance(0.15))
        return replace(clause, tail=(f", {phrase} ,", english_infinitive(inner, "ing")))
    clause = _bare(dice, dice.pick(_TRYING), who, world, negated=dice.chance(0.1))
    return replace(clause, tail=(f", {phrase} ,", english_infinitive(inner, "to")))
