"""The remaining words of the toy corpus: adjectives, adverbials, names, places.

Readings after a comma are synonyms, the likeliest first; `_` stands for a space.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from normlab.data.toy.listing import listing
from normlab.data.toy.nouns import Noun

# Kinds of nouns an adjective goes with, then the adjectives in the order in which they precede a
# noun (opinion, size, state, age, colour).
_ADJECTIVES = """
person kin : nett=nice,kind freundlich=friendly klug=clever,smart berühmt=famous höflich=polite
person kin : neugierig=curious ehrlich=honest tapfer=brave geduldig=patient fleißig=hard-working
person kin : faul=lazy schüchtern=shy vorsichtig=careful,cautious groß=tall klein=short,small
person kin : dick=fat dünn=thin stark=strong reich=rich,wealthy arm=poor müde=tired krank=sick,ill
person kin : gesund=healthy glücklich=happy traurig=sad nervös=nervous wütend=angry,furious
person kin : hungrig=hungry einsam=lonely zufrieden=satisfied,content stolz=proud alt=old
person kin : jung=young
animal : schön=beautiful gefährlich=dangerous süß=cute groß=big,large klein=small,little dick=fat
animal : schnell=fast,quick langsam=slow hungrig=hungry müde=tired alt=old jung=young
animal : schwarz=black weiß=white braun=brown grau=gray
food : lecker=delicious,tasty groß=big,large klein=small,little frisch=fresh süß=sweet heiß=hot
food : kalt=cold teuer=expensive billig=cheap
drink : lecker=delicious,tasty gut=good frisch=fresh heiß=hot kalt=cold warm=warm teuer=expensive
text : interessant=interesting langweilig=boring,dull spannend=exciting,thrilling wichtig=important
text : seltsam=strange,odd lustig=funny gut=good schlecht=bad lang=long kurz=short alt=old neu=new
thing furniture clothes : schön=beautiful,pretty hässlich=ugly praktisch=practical,handy
thing furniture clothes : wertvoll=valuable teuer=expensive billig=cheap groß=big,large
thing furniture clothes : klein=small,little schwer=heavy leicht=light sauber=clean
thing furniture clothes : schmutzig=dirty alt=old neu=new rot=red blau=blue grün=green
thing furniture clothes : gelb=yellow schwarz=black weiß=white
opening : schwer=heavy groß=big,large klein=small,little alt=old neu=new grün=green dunkel=dark
opening : weiß=white
machine vehicle : teuer=expensive billig=cheap schön=beautiful groß=big,large klein=small,little
machine vehicle : modern=modern kaputt=broken alt=old neu=new rot=red schwarz=black weiß=white
matter : interessant=interesting wichtig=important seltsam=strange,odd schwierig=difficult,hard
matter : einfach=simple,easy gut=good groß=big,great klein=small,little neu=new alt=old
event : wichtig=important langweilig=boring,dull schön=beautiful,wonderful groß=big,large
event : klein=small,little lang=long
building : schön=beautiful berühmt=famous hässlich=ugly ruhig=quiet teuer=expensive groß=big,large
building : klein=small,little modern=modern dunkel=dark alt=old neu=new
place : schön=beautiful ruhig=quiet groß=big,large klein=small,little alt=old
"""

# adjective, German comparative, English comparative; of two things of the kinds at the left
_COMPARATIVES = """
person kin : alt/älter/older jung/jünger/younger groß/größer/taller klug/klüger/smarter,cleverer
person kin : stark/stärker/stronger reich/reicher/richer geduldig/geduldiger/more_patient
person kin : glücklich/glücklicher/happier fleißig/fleißiger/more_hard-working müde/müder/more_tired
animal : groß/größer/bigger,larger klein/kleiner/smaller schnell/schneller/faster,quicker
animal : dick/dicker/fatter gefährlich/gefährlicher/more_dangerous
thing clothes furniture : teuer/teurer/more_expensive billig/billiger/cheaper
thing clothes furniture : schwer/schwerer/heavier neu/neuer/newer
thing clothes furniture : schön/schöner/more_beautiful,prettier
vehicle building : teuer/teurer/more_expensive groß/größer/bigger,larger alt/älter/older
vehicle building : klein/kleiner/smaller modern/moderner/more_modern
text matter : interessant/interessanter/more_interesting wichtig/wichtiger/more_important
text matter : gut/besser/better schlecht/schlechter/worse
"""

# noun gender plural english : location preposition / direction preposition / at / to
_PLACES = """
Park m Parks park : in in in to,into
Schule f Schulen school : in in at,in to
Stadt f Städte city,town : in in in to,into
Garten m Gärten garden,yard : in in in into
Küche f Küchen kitchen : in in in to,into
Büro n Büros office : in in at,in to
Bahnhof m Bahnhöfe train_station,station : an zu at to
Flughafen m Flughäfen airport : an zu at to
Strand m Strände beach : an an at,on to
Markt m Märkte market : auf auf at to
Restaurant n Restaurants restaurant : in in in,at to
Hotel n Hotels hotel : in in at,in to
Krankenhaus n Krankenhäuser hospital : in in in,at to
Museum n Museen museum : in in at,in to
Theater n Theater theater : in in at,in to
Kino n Kinos movie_theater,cinema : in in at,in to
Supermarkt m Supermärkte supermarket : in in at,in to
Wald m Wälder forest,woods : in in in into
Dorf n Dörfer village : in in in to
Bibliothek f Bibliotheken library : in in in,at to
Universität f Universitäten university : an an at to
Kirche f Kirchen church : in in in,at to
Haus n Häuser house : in in in into
Café n Cafés café,coffee_shop : in in in,at to
Berg m Berge mountain : auf auf on up
See m Seen lake : an an at,by to
Fluss m Flüsse river : an an at,by to
Brücke f Brücken bridge : auf auf on onto
Insel f Inseln island : auf auf on to
Bäckerei f Bäckereien bakery : in in at,in to
Apotheke f Apotheken pharmacy,drugstore : in in at,in to
Fabrik f Fabriken factory : in in in,at to
Werkstatt f Werkstätten workshop,garage : in in in,at to
Keller m Keller basement,cellar : in in in to,into
"""

# cities and countries without an article: in Berlin, nach Berlin
CITIES: tuple[tuple[str, str], ...] = tuple(
    (german, english)
    for german, _, english in (
        name.partition("=")
        for name in listing(
            """
    Berlin=Berlin München=Munich Köln=Cologne Wien=Vienna Hamburg=Hamburg Rom=Rome
    Paris=Paris London=London Genf=Geneva Nürnberg=Nuremberg Dresden=Dresden Prag=Prague
    Deutschland=Germany Österreich=Austria Frankreich=France Italien=Italy Spanien=Spain
    Griechenland=Greece Japan=Japan Norwegen=Norway England=England Polen=Poland
"""
        )
    )
)

MEN: tuple[str, ...] = listing(
    """
    Peter Paul Karl Anton Martin Stefan Jan Michael Daniel Oliver Robert Otto Walter Tim
"""
)
WOMEN: tuple[str, ...] = listing(
    """
    Anna Maria Julia Lena Sabine Petra Eva Laura Sophie Emma Claudia Monika Helga Nina
"""
)
SURNAMES: tuple[str, ...] = listing(
    """
    Müller Schmidt Schneider Fischer Weber Wagner Becker Hoffmann Koch Richter Klein
"""
)

WEEKDAYS: tuple[tuple[str, str], ...] = (
    ("Montag", "Monday"),
    ("Dienstag", "Tuesday"),
    ("Mittwoch", "Wednesday"),
    ("Donnerstag", "Thursday"),
    ("Freitag", "Friday"),
    ("Samstag", "Saturday"),
    ("Sonntag", "Sunday"),
)
MONTHS: tuple[tuple[str, str], ...] = (
    ("Januar", "January"),
    ("Februar", "February"),
    ("März", "March"),
    ("April", "April"),
    ("Mai", "May"),
    ("Juni", "June"),
    ("Juli", "July"),
    ("August", "August"),
    ("September", "September"),
    ("Oktober", "October"),
    ("November", "November"),
    ("Dezember", "December"),
)

# the masculine and the feminine word of a profession, and its English readings
PROFESSIONS: tuple[tuple[str, str, str], ...] = (
    ("Lehrer", "Lehrerin", "teacher"),
    ("Arzt", "Ärztin", "doctor,physician"),
    ("Bäcker", "Bäckerin", "baker"),
    ("Koch", "Köchin", "cook,chef"),
    ("Musiker", "Musikerin", "musician"),
    ("Ingenieur", "Ingenieurin", "engineer"),
    ("Anwalt", "Anwältin", "lawyer,attorney"),
    ("Polizist", "Polizistin", "police officer"),
    ("Schauspieler", "Schauspielerin", "actor"),
    ("Künstler", "Künstlerin", "artist"),
    ("Verkäufer", "Verkäuferin", "salesperson,shop assistant"),
)

_TIMES = """
past : gestern=yesterday vorgestern=the_day_before_yesterday letzte_Woche=last_week
past : gestern_Abend=last_night,yesterday_evening letztes_Jahr=last_year letzten_Monat=last_month
past : heute_Morgen=this_morning damals=back_then,at_that_time im_letzten_Sommer=last_summer
now : heute=today jetzt=now gerade=right_now,at_the_moment im_Moment=at_the_moment,right_now
future : morgen=tomorrow übermorgen=the_day_after_tomorrow nächste_Woche=next_week bald=soon
future : nächstes_Jahr=next_year morgen_früh=tomorrow_morning heute_Abend=tonight,this_evening
future : nächsten_Monat=next_month
habit : jeden_Tag=every_day jede_Woche=every_week jeden_Abend=every_evening,every_night
habit : am_Wochenende=on_weekends,on_the_weekend im_Winter=in_winter,in_the_winter
habit : im_Sommer=in_summer,in_the_summer jeden_Morgen=every_morning
"""
_FREQUENCIES = (
    "oft=often immer=always manchmal=sometimes nie=never selten=rarely,seldom "
    "meistens=usually,mostly normalerweise=usually,normally"
)
_MANNERS = (
    "schnell=quickly,fast langsam=slowly leise=quietly laut=loudly allein=alone "
    "vorsichtig=carefully,cautiously fröhlich=cheerfully,happily heimlich=secretly,in_secret "
    "ruhig=calmly geduldig=patiently zufällig=by_chance,by_accident freiwillig=voluntarily "
    "ohne_Hilfe=without_help,without_any_help mit_großer_Freude=with_great_pleasure,with_great_joy"
)
_MEANS = (
    "mit_dem_Bus=by_bus mit_dem_Zug=by_train mit_dem_Auto=by_car zu_Fuß=on_foot "
    "mit_dem_Fahrrad=by_bike,by_bicycle mit_der_Straßenbahn=by_tram,by_streetcar"
)
_CAUSES = (
    "wegen_des_Regens=because_of_the_rain,due_to_the_rain "
    "trotz_des_schlechten_Wetters=despite_the_bad_weather,in_spite_of_the_bad_weather "
    "wegen_der_Prüfung=because_of_the_exam,because_of_the_test "
    "trotz_der_Kälte=despite_the_cold,in_spite_of_the_cold "
    "nach_dem_Essen=after_the_meal,after_eating vor_der_Arbeit=before_work "
    "während_der_Pause=during_the_break nach_der_Schule=after_school "
    "aus_diesem_Grund=for_this_reason,for_that_reason"
)
_DEGREES = "sehr=very ziemlich=quite,rather wirklich=really zu=too so=so"


@dataclass(frozen=True)
class Word:
    """A German word or phrase that does not inflect here, and its English readings."""

    german: str
    english: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """A noun with the prepositions of being there and of going there."""

    noun: Noun
    at: str
    to: str
    english_at: tuple[str, ...]
    english_to: tuple[str, ...]


def _word(cell: str) -> Word:
    german, english = cell.replace("_", " ").split("=")
    return Word(german, tuple(english.split(",")))


def _words(row: str) -> tuple[Word, ...]:
    return tuple(_word(cell) for cell in row.split())


def _by_heading(table: str) -> Mapping[str, tuple[str, ...]]:
    cells: dict[str, tuple[str, ...]] = {}
    for line in table.strip().splitlines():
        heading, row = line.split(" : ")
        for kind in heading.split():
            cells[kind] = cells.get(kind, ()) + tuple(row.split())
    return MappingProxyType(cells)


def _place(line: str) -> Place:
    noun, usage = line.split(" : ")
    lemma, gender, plural, readings = noun.split()
    english = tuple(readings.replace("_", " ").split(","))
    at, to, english_at, english_to = usage.split()
    return Place(
        noun=Noun(lemma, gender, plural, english, "place", weak=False),
        at=at,
        to=to,
        english_at=tuple(english_at.split(",")),
        english_to=tuple(english_to.split(",")),
    )


ADJECTIVES: Mapping[str, tuple[Word, ...]] = MappingProxyType(
    {kind: tuple(_word(cell) for cell in cells) for kind, cells in _by_heading(_ADJECTIVES).items()}
)
COMPARATIVES: Mapping[str, tuple[Word, ...]] = MappingProxyType(
    {
        kind: tuple(_word(cell.split("/", 1)[1].replace("/", "=")) for cell in cells)
        for kind, cells in _by_heading(_COMPARATIVES).items()
    }
)
TIMES: Mapping[str, tuple[Word, ...]] = MappingProxyType(
    {world: tuple(_word(cell) for cell in cells) for world, cells in _by_heading(_TIMES).items()}
)
PLACES: tuple[Place, ...] = tuple(_place(line) for line in _PLACES.strip().splitlines())
FREQUENCIES: tuple[Word, ...] = _words(_FREQUENCIES)
MANNERS: tuple[Word, ...] = _words(_MANNERS)
MEANS: tuple[Word, ...] = _words(_MEANS)
CAUSES: tuple[Word, ...] = _words(_CAUSES)
DEGREES: tuple[Word, ...] = _words(_DEGREES)
