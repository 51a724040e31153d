"""The nouns of the toy corpus: gender, plural and English readings, by what they denote.

A line is `lemma gender plural readings`. Gender `m*` marks the weak declension (der Junge, den
Jungen), plural `-` a mass noun. Readings after a comma are synonyms; `_` stands for a space. What
a noun denotes decides which verbs and adjectives go with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_PEOPLE = """
Mann m Männer man
Frau f Frauen woman
Junge m* Jungen boy
Mädchen n Mädchen girl
Kind n Kinder child,kid
Lehrer m Lehrer teacher
Lehrerin f Lehrerinnen teacher
Arzt m Ärzte doctor,physician
Ärztin f Ärztinnen doctor,physician
Student m* Studenten student
Studentin f Studentinnen student
Schüler m Schüler pupil,student
Schülerin f Schülerinnen pupil,student
Polizist m* Polizisten policeman,police_officer
Polizistin f Polizistinnen policewoman,police_officer
Bäcker m Bäcker baker
Koch m Köche cook,chef
Köchin f Köchinnen cook,chef
Maler m Maler painter
Künstlerin f Künstlerinnen artist
Musiker m Musiker musician
Sängerin f Sängerinnen singer
Fahrer m Fahrer driver
Verkäufer m Verkäufer salesman,shop_assistant
Verkäuferin f Verkäuferinnen saleswoman,shop_assistant
Kellner m Kellner waiter
Kellnerin f Kellnerinnen waitress
Gast m Gäste guest
Tourist m* Touristen tourist
Touristin f Touristinnen tourist
Anwalt m Anwälte lawyer,attorney
Anwältin f Anwältinnen lawyer,attorney
Bauer m* Bauern farmer
Ingenieur m Ingenieure engineer
König m Könige king
Königin f Königinnen queen
Soldat m* Soldaten soldier
Zeuge m* Zeugen witness
Dieb m Diebe thief
Besucher m Besucher visitor
Besucherin f Besucherinnen visitor
Dichter m Dichter poet
Schauspieler m Schauspieler actor
Schauspielerin f Schauspielerinnen actress
Direktor m Direktoren director,manager
Übersetzerin f Übersetzerinnen translator
"""

_KIN = """
Bruder m Brüder brother
Schwester f Schwestern sister
Vater m Väter father,dad
Mutter f Mütter mother,mom
Sohn m Söhne son
Tochter f Töchter daughter
Onkel m Onkel uncle
Tante f Tanten aunt
Großvater m Großväter grandfather,grandpa
Großmutter f Großmütter grandmother,grandma
Cousin m Cousins cousin
Freund m Freunde friend
Freundin f Freundinnen friend
Nachbar m* Nachbarn neighbor
Nachbarin f Nachbarinnen neighbor
Kollege m* Kollegen colleague,coworker
Kollegin f Kolleginnen colleague,coworker
Chef m Chefs boss
Chefin f Chefinnen boss
"""

_ANIMALS = """
Hund m Hunde dog
Katze f Katzen cat
Vogel m Vögel bird
Pferd n Pferde horse
Maus f Mäuse mouse
Kuh f Kühe cow
Schwein n Schweine pig
Schaf n Schafe sheep
Fisch m Fische fish
Bär m* Bären bear
Löwe m* Löwen lion
Affe m* Affen monkey,ape
Hase m* Hasen hare,rabbit
Elefant m* Elefanten elephant
Ente f Enten duck
Huhn n Hühner chicken,hen
Fuchs m Füchse fox
Wolf m Wölfe wolf
Ziege f Ziegen goat
Schlange f Schlangen snake
"""

_FOOD = """
Apfel m Äpfel apple
Birne f Birnen pear
Brot n - bread
Käse m - cheese
Reis m - rice
Fleisch n - meat
Obst n - fruit
Suppe f Suppen soup
Kuchen m Kuchen cake
Torte f Torten cake,tart
Ei n Eier egg
Kartoffel f Kartoffeln potato
Tomate f Tomaten tomato
Banane f Bananen banana
Orange f Orangen orange
Salat m Salate salad
Pizza f Pizzas pizza
Schokolade f - chocolate
Wurst f Würste sausage
Keks m Kekse cookie,biscuit
Brötchen n Brötchen roll,bun
Kirsche f Kirschen cherry
"""

_DRINKS = """
Wasser n - water
Kaffee m - coffee
Tee m - tea
Bier n - beer
Wein m - wine
Milch f - milk
Saft m - juice
Limonade f - lemonade
"""

_TEXTS = """
Buch n Bücher book
Zeitung f Zeitungen newspaper,paper
Brief m Briefe letter
Roman m Romane novel
Geschichte f Geschichten story,tale
Gedicht n Gedichte poem
Bericht m Berichte report
Artikel m Artikel article
Zeitschrift f Zeitschriften magazine
Nachricht f Nachrichten message
Vertrag m Verträge contract
Märchen n Märchen fairy_tale
Postkarte f Postkarten postcard
Tagebuch n Tagebücher diary,journal
"""

_THINGS = """
Ball m Bälle ball
Tasche f Taschen bag
Schlüssel m Schlüssel key
Uhr f Uhren watch,clock
Handy n Handys cell_phone,mobile_phone,phone
Kamera f Kameras camera
Spiegel m Spiegel mirror
Bild n Bilder picture,painting
Koffer m Koffer suitcase
Rucksack m Rucksäcke backpack
Regenschirm m Regenschirme umbrella
Ring m Ringe ring
Geschenk n Geschenke present,gift
Blume f Blumen flower
Messer n Messer knife
Löffel m Löffel spoon
Tasse f Tassen cup
Glas n Gläser glass
Flasche f Flaschen bottle
Teller m Teller plate
Stift m Stifte pen
Werkzeug n Werkzeuge tool
Puppe f Puppen doll
Karte f Karten map,card
Korb m Körbe basket
Kiste f Kisten box,crate
Decke f Decken blanket
Kissen n Kissen pillow,cushion
Kerze f Kerzen candle
"""

_FURNITURE = """
Tisch m Tische table
Stuhl m Stühle chair
Bett n Betten bed
Sofa n Sofas sofa,couch
Schrank m Schränke cupboard,closet
Teppich m Teppiche carpet,rug
"""

_OPENINGS = """
Tür f Türen door
Fenster n Fenster window
Tor n Tore gate
Schublade f Schubladen drawer
"""

_MACHINES = """
Lampe f Lampen lamp,light
Computer m Computer computer
Radio n Radios radio
Fernseher m Fernseher television,TV
Maschine f Maschinen machine
"""

_CLOTHES = """
Mantel m Mäntel coat
Hut m Hüte hat
Hemd n Hemden shirt
Kleid n Kleider dress
Jacke f Jacken jacket
Rock m Röcke skirt
Pullover m Pullover sweater
Schal m Schals scarf
Mütze f Mützen cap
Anzug m Anzüge suit
"""

_VEHICLES = """
Auto n Autos car
Fahrrad n Fahrräder bicycle,bike
Bus m Busse bus
Zug m Züge train
Straßenbahn f Straßenbahnen tram,streetcar
Schiff n Schiffe ship
Flugzeug n Flugzeuge plane,airplane
Taxi n Taxis taxi,cab
Boot n Boote boat
Motorrad n Motorräder motorcycle,motorbike
"""

_MATTERS = """
Frage f Fragen question
Antwort f Antworten answer,reply
Problem n Probleme problem
Idee f Ideen idea
Plan m Pläne plan
Fehler m Fehler mistake,error
Aufgabe f Aufgaben task,exercise
Entscheidung f Entscheidungen decision
Regel f Regeln rule
Wort n Wörter word
Lied n Lieder song
Film m Filme film,movie
Spiel n Spiele game
Traum m Träume dream
Reise f Reisen trip,journey
Geheimnis n Geheimnisse secret
"""

_EVENTS = """
Konzert n Konzerte concert
Hochzeit f Hochzeiten wedding
Prüfung f Prüfungen exam,test
Sitzung f Sitzungen meeting
Feier f Feiern party,celebration
Vorlesung f Vorlesungen lecture
"""

_BUILDINGS = """
Haus n Häuser house
Wohnung f Wohnungen apartment,flat
Zimmer n Zimmer room
Schule f Schulen school
Hotel n Hotels hotel
Kirche f Kirchen church
Brücke f Brücken bridge
Garten m Gärten garden,yard
Stadt f Städte city,town
Dorf n Dörfer village
Schloss n Schlösser castle
Turm m Türme tower
Museum n Museen museum
"""

_OTHERS = """
Baum m Bäume tree
Tier n Tiere animal
Sprache f Sprachen language
Rechnung f Rechnungen bill,invoice
Besuch m Besuche visit
Geld n - money
Hilfe f - help
Musik f - music
"""


# Nouns are compared by identity: each stands in the lexicon once, and sentences ask often.
@dataclass(frozen=True, eq=False)
class Noun:
    """A noun with its declension class and its English readings, the likeliest first."""

    lemma: str
    gender: str
    plural: str
    english: tuple[str, ...]
    kind: str
    weak: bool

    @property
    def countable(self) -> bool:
        """Tell whether the noun has a plural."""
        return bool(self.plural)


def _parse(kind: str, table: str) -> tuple[Noun, ...]:
    nouns: list[Noun] = []
    for line in table.strip().splitlines():
        lemma, gender, plural, readings = line.split()
        nouns.append(
            Noun(
                lemma=lemma,
                gender=gender[0],
                plural="" if plural == "-" else plural,
                english=tuple(readings.replace("_", " ").split(",")),
                kind=kind,
                weak=gender.endswith("*"),
            )
        )
    return tuple(nouns)


KINDS: Mapping[str, tuple[Noun, ...]] = MappingProxyType(
    {
        "person": _parse("person", _PEOPLE),
        "kin": _parse("kin", _KIN),
        "animal": _parse("animal", _ANIMALS),
        "food": _parse("food", _FOOD),
        "drink": _parse("drink", _DRINKS),
        "text": _parse("text", _TEXTS),
        "thing": _parse("thing", _THINGS),
        "furniture": _parse("furniture", _FURNITURE),
        "opening": _parse("opening", _OPENINGS),
        "machine": _parse("machine", _MACHINES),
        "clothes": _parse("clothes", _CLOTHES),
        "vehicle": _parse("vehicle", _VEHICLES),
        "matter": _parse("matter", _MATTERS),
        "event": _parse("event", _EVENTS),
        "building": _parse("building", _BUILDINGS),
        "other": _parse("other", _OTHERS),
    }
)
LEMMAS: Mapping[str, Noun] = MappingProxyType(
    {noun.lemma: noun for nouns in KINDS.values() for noun in nouns}
)


def select(names: str) -> tuple[Noun, ...]:
    """Return the nouns named by kinds and lemmas, as in `"text food Ball"`."""
    return tuple(
        noun
        for name in names.split()
        for noun in (KINDS[name] if name in KINDS else (LEMMAS[name],))
    )
