"""Adverbials of place and time, in German and English."""

from normlab.data.toy import english, german
from normlab.data.toy.dice import Dice
from normlab.data.toy.german import ACC, DAT
from normlab.data.toy.phrases import noun_phrase
from normlab.data.toy.words import CITIES, MONTHS, PLACES, TIMES, WEEKDAYS


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
