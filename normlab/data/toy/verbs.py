"""The verbs of the toy corpus: principal parts, English readings, frames.

A line is `parts | readings | frame | subjects | objects | flags`.

Parts are `infinitive third-singular preterite participle`; a weak verb needs the infinitive only.
`auf+machen` separates, `sich freuen` is reflexive, `(Fußball/keinen_Fußball)spielen` carries a
fixed complement with its negative form (`nicht` where the verb is negated by a plain `nicht`),
`*` before the participle (or alone, for a weak verb) takes the auxiliary sein.

Frames: `-` none, `A` accusative, `D` dative, `DA` both, `auf A` a preposition and its case,
`goal` a direction, `place` a location, `swap` a German subject that is the English object.
English readings: `turn~on` lets its object stand between, `wait_for` does not.
Flags: `s` stative (no progressive), `d` durative (goes with seit), `t` dative only by "to",
`p` past by the preterite only, `o` happens once, to one person, `n` no adverbial of place.
"""

from dataclasses import dataclass

from normlab.data.toy.nouns import Noun, select

_TABLE = """
schlafen schläft schlief geschlafen | sleep | - | person kin animal | | d
arbeiten | work | - | | | d
lachen | laugh | - | | | d
weinen | cry,weep | - | | | d
tanzen | dance | - | | | d
singen singt sang gesungen | sing | - | | | d
lernen | study,learn | - | | | d
kochen | cook | - | | | d
warten | wait | - | | | d
rauchen | smoke | - | | | d
träumen | dream | - | | | d
lächeln | smile | - | | | d
schwimmen schwimmt schwamm *geschwommen | swim | - | person kin animal | | d
laufen läuft lief *gelaufen | run | - | person kin animal | | d
bellen | bark | - | Hund | | d
reden | talk | - | | | d
streiten streitet stritt gestritten | argue,quarrel | - | | | d
(Fußball/keinen_Fußball)spielen | play_soccer,play_football | - | | | d
(Klavier/kein_Klavier)spielen | play_the_piano | - | | | d
(Gitarre/keine_Gitarre)spielen | play_the_guitar | - | | | d
(Tennis/kein_Tennis)spielen | play_tennis | - | | | d
(Schach/kein_Schach)spielen | play_chess | - | | | d
(Hunger/keinen_Hunger)haben hat hatte gehabt | be_hungry | - | person kin animal | | sp
(Angst/keine_Angst)haben hat hatte gehabt | be_afraid,be_scared | - | | | sp
(Zeit/keine_Zeit)haben hat hatte gehabt | have_time | - | | | sp
(spazieren/nicht)gehen geht ging *gegangen | go_for_a_walk,take_a_walk | - | | |
auf+stehen steht stand *gestanden | get_up | - | | | n
auf+wachen * | wake_up | - | | |
ein+schlafen schläft schlief *geschlafen | fall_asleep | - | | |
fern+sehen sieht sah gesehen | watch_TV,watch_television | - | | | d
ein+kaufen | go_shopping,do_the_shopping | - | | |
aus+gehen geht ging *gegangen | go_out | - | | | n
zurück+kommen kommt kam *gekommen | come_back,return | - | person kin | | n
an+kommen kommt kam *gekommen | arrive | - | person kin vehicle | |
ab+fahren fährt fuhr *gefahren | leave,depart | - | Bus Zug Schiff Straßenbahn | | n
an+fangen fängt fing gefangen | begin,start | - | event Film Spiel | | n
auf+hören | stop,end | - | event Film Spiel | | n
statt+finden findet fand gefunden | take_place | - | event | |
weg+laufen läuft lief *gelaufen | run_away | - | person kin animal | | n
um+ziehen zieht zog *gezogen | move | - | | | n
aus+steigen steigt stieg *gestiegen | get_off,get_out | - | | | n
ein+steigen steigt stieg *gestiegen | get_on,get_in | - | | | n
hin+fallen fällt fiel *gefallen | fall_down | - | | |
mit+kommen kommt kam *gekommen | come_along | - | | | n
nach+denken denkt dachte gedacht | think,reflect | - | | | d
sich aus+ruhen | rest,take_a_rest | - | | |
sich beeilen | hurry,hurry_up | - | | |
sehen sieht sah gesehen | see | A | person kin animal | person kin animal vehicle building | s
hören | hear | A | | person kin animal Lied Geschichte Antwort Frage | s
lesen liest las gelesen | read | A | | text |
schreiben schreibt schrieb geschrieben | write | A | | text |
essen isst aß gegessen | eat | A | | food |
trinken trinkt trank getrunken | drink | A | | drink |
fressen frisst fraß gefressen | eat | A | animal | Apfel Brot Fleisch Banane Kartoffel |
kaufen | buy,purchase | A | | food drink thing clothes vehicle furniture Buch Zeitung |
verkaufen | sell | A | | thing clothes vehicle furniture Haus Buch |
suchen | look_for,search_for | A | person kin | person kin animal thing text Hotel | d
finden findet fand gefunden | find | A | | thing animal text Antwort Fehler | s
verlieren verliert verlor verloren | lose | A | | thing Hut Mantel Handy Brief Spiel |
vergessen vergisst vergaß vergessen | forget | A | | thing text Wort Plan Antwort | s
brauchen | need | A | | thing clothes Antwort Plan Auto Fahrrad Zimmer | s
haben hat hatte gehabt | have | A | | thing animal vehicle clothes Idee Plan Problem Haus | sp
lieben | love | A | | person kin animal Lied Buch Film | s
hassen | hate | A | | Spiel Schule Prüfung Lied Regel Film | s
kennen kennt kannte gekannt | know | A | | person kin Lied Stadt Geschichte Buch | s
besuchen | visit | A | | person kin Museum Schloss Stadt Dorf | n
treffen trifft traf getroffen | meet | A | | person kin |
fragen | ask | A | | person kin |
grüßen | greet | A | | person kin |
verstehen versteht verstand verstanden | understand | A | | person kin matter text | s
lösen | solve | A | | Problem Aufgabe |
reparieren | repair,fix | A | | vehicle machine Uhr Stuhl |
waschen wäscht wusch gewaschen | wash | A | | clothes Auto Apfel Tasse Teller |
putzen | clean | A | | Fenster Zimmer Wohnung Fahrrad |
kochen | cook,make | A | | Suppe Reis Fleisch Ei Kartoffel |
backen backt backte gebacken | bake | A | | Brot Kuchen Torte Keks Pizza Brötchen |
schneiden schneidet schnitt geschnitten | cut | A | | Brot Käse Fleisch Kuchen Wurst Apfel |
tragen trägt trug getragen | wear | A | | clothes |
tragen trägt trug getragen | carry | A | | Tasche Koffer Rucksack Korb Kiste Stuhl |
bauen | build | A | | Haus Brücke Boot Turm Schiff | n
malen | paint | A | | Bild Haus Tier Schiff Blume Baum |
zeichnen | draw | A | | Bild Karte Pferd Baum |
öffnen | open | A | | opening Flasche Brief Kiste Koffer |
schließen schließt schloss geschlossen | close,shut | A | | opening Buch Koffer |
fangen fängt fing gefangen | catch | A | person kin animal | Fisch Vogel Maus Hase |
füttern | feed | A | | animal |
jagen | chase,hunt | A | animal | Maus Hase Vogel Ente Huhn |
beißen beißt biss gebissen | bite | A | Hund Schlange Affe | person kin |
wecken | wake~up,wake | A | | person kin |
stehlen stiehlt stahl gestohlen | steal | A | | thing vehicle Mantel Pferd Bild |
verstecken | hide | A | | thing Brief Tagebuch |
benutzen | use | A | | machine Messer Werkzeug Karte Kamera Fahrrad |
bestellen | order | A | | food drink Buch Taxi |
probieren | try,taste | A | | food |
vermissen | miss | A | | person kin Hund Katze | s
heiraten | marry | A | | person | on
loben | praise | A | | person kin animal |
kritisieren | criticize | A | | person kin Film Plan Entscheidung Artikel |
beobachten | watch,observe | A | person kin animal | person kin animal | d
fotografieren | photograph,take_pictures_of | A | | person kin animal building Schiff |
entdecken | discover | A | | Fehler Geheimnis Schloss Dorf Brief |
bemerken | notice | A | | Fehler person kin Problem | s
erkennen erkennt erkannte erkannt | recognize | A | | person kin Lied | s
beantworten | answer | A | | Frage Brief Nachricht |
wiederholen | repeat | A | | Frage Antwort Wort |
übersetzen - - übersetzt | translate | A | | text Wort Lied |
unterschreiben unterschreibt unterschrieb unterschrieben | sign | A | | Vertrag Brief |
gewinnen gewinnt gewann gewonnen | win | A | | Spiel |
pflücken | pick | A | | Blume Apfel Kirsche Birne Tomate |
verlassen verlässt verließ verlassen | leave | A | | Haus Stadt Schule Zimmer Hotel Dorf | n
auf+machen | open | A | | opening Flasche Kiste Koffer |
zu+machen | close,shut | A | | opening Buch Koffer Kiste |
an+machen | turn~on,switch~on | A | | machine |
aus+machen | turn~off,switch~off | A | | machine Kerze |
an+rufen ruft rief gerufen | call,phone | A | | person kin | n
ab+holen | pick~up | A | | person kin | n
mit+bringen bringt brachte gebracht | bring,bring~along | A | | food drink thing Freund Freundin | n
ein+laden lädt lud geladen | invite | A | | person kin | n
auf+räumen | tidy~up,clean~up | A | | Zimmer Wohnung Schrank |
vor+bereiten - - bereitet | prepare | A | | event Reise |
an+schauen | look_at,watch | A | | Bild Film Spiel Schloss Karte |
kennen+lernen | meet,get_to_know | A | | person kin |
weg+werfen wirft warf geworfen | throw~away | A | | thing Zeitung Brief clothes |
aus+leihen leiht lieh geliehen | borrow | A | | Buch Fahrrad Auto Regenschirm Roman |
zurück+bringen bringt brachte gebracht | bring~back,return | A | | thing Buch clothes | n
ab+schließen schließt schloss geschlossen | lock | A | | Tür Tor Haus Fahrrad Auto |
auf+schreiben schreibt schrieb geschrieben | write~down | A | | Wort Antwort Idee Geschichte |
an+ziehen zieht zog gezogen | put~on | A | | clothes |
aus+ziehen zieht zog gezogen | take~off | A | | clothes |
auf+essen isst aß gegessen | eat~up,finish | A | | food |
ab+sagen | cancel,call~off | A | | event Reise |
aus+wählen | choose,select | A | | Buch Geschenk Kleid Film Hut Hotel |
auf+hängen | hang~up | A | | Bild Mantel Spiegel Hemd |
helfen hilft half geholfen | help | D | | person kin |
danken | thank | D | | person kin |
folgen * | follow | D | person kin animal | person kin animal | n
gratulieren | congratulate | D | | person kin |
antworten | answer,reply_to | D | | person kin |
vertrauen | trust | D | | person kin | s
zu+hören | listen_to | D | | person kin |
zu+schauen | watch | D | | person kin animal |
begegnen * | run_into,meet | D | | person kin |
gehören | belong_to | D | thing vehicle clothes building furniture Hund Katze Pferd | person kin | s
gefallen gefällt gefiel gefallen | like | swap | text clothes matter building event | person kin | s
schmecken | like | swap | food | person kin animal | sp
geben gibt gab gegeben | give | DA | | thing food drink text Geld |
schenken | give | DA | | thing Buch clothes Fahrrad Hund Katze |
zeigen | show | DA | | thing text building Bild |
schicken | send | DA | | Brief Geschenk Postkarte Nachricht Bild Blume |
bringen bringt brachte gebracht | bring | DA | | food drink thing Zeitung |
leihen leiht lieh geliehen | lend | DA | | Buch Fahrrad Auto Regenschirm Geld |
erzählen | tell | DA | | Geschichte Märchen Geheimnis Traum |
erklären | explain | DA | | Problem Regel Aufgabe Plan Wort Entscheidung | t
vor+lesen liest las gelesen | read | DA | | Buch Geschichte Märchen Gedicht Brief |
empfehlen empfiehlt empfahl empfohlen | recommend | DA | | Buch Film Hotel Roman Museum | t
beschreiben beschreibt beschrieb beschrieben | describe | DA | | Haus Bild Dieb Plan Stadt | t
an+bieten bietet bot geboten | offer | DA | | drink food Stuhl Hilfe |
zurück+geben gibt gab gegeben | return,give~back | DA | | Buch Schlüssel Geld Regenschirm | tn
warten | wait_for | auf A | | person kin Bus Zug Taxi Antwort Brief | d
denken denkt dachte gedacht | think_about,think_of | an A | | person kin Reise Prüfung Hochzeit | d
sprechen spricht sprach gesprochen | talk_to,speak_to,speak_with | mit D | | person kin | d
sprechen spricht sprach gesprochen | talk_about,speak_about | über A | | matter event Film Buch | d
träumen | dream_of,dream_about | von D | | Reise person kin Haus Schloss | d
lachen | laugh_at,laugh_about | über A | | person kin Fehler Geschichte Film |
sich freuen | look_forward_to | auf A | | event Reise Film Besuch | d
sich freuen | be_happy_about,be_glad_about | über A | | Geschenk Brief Antwort Nachricht | s
sich ärgern | be_annoyed_at,be_angry_about | über A | | Fehler Brief Entscheidung Nachbar | s
sich interessieren | be_interested_in | für A | | Film Sprache Buch Bild Musik | s
sich erinnern | remember | an A | | person kin Lied Reise Hochzeit Traum | s
sich kümmern | take_care_of,look_after | um A | | kin animal Kind Gast Garten | d
sich verlieben | fall_in_love_with | in A | | person | o
sich treffen trifft traf getroffen | meet,meet_with | mit D | | person kin |
spielen | play_with | mit D | person kin animal | Ball Katze Hund Puppe Kind | d
teil+nehmen nimmt nahm genommen | take_part_in,participate_in | an D | | event Spiel Reise |
sich gewöhnen | get_used_to | an A | | Regel Haus Stadt Chef |
sich beschweren | complain_about | über A | | Zimmer Suppe Rechnung Nachbar Hotel Entscheidung |
achten | pay_attention_to | auf A | | Regel Kind Fehler Wort |
(Angst/keine_Angst)haben hat hatte gehabt | be_afraid_of | vor D | | animal Prüfung Chef | sp
gehen geht ging *gegangen | go,walk | goal | | |
fahren fährt fuhr *gefahren | go,drive,travel | goal | | |
fliegen fliegt flog *geflogen | fly | city | | |
reisen * | travel | city | | |
kommen kommt kam *gekommen | come | goal | | |
laufen läuft lief *gelaufen | run,walk | goal | person kin animal | |
rennen rennt rannte *gerannt | run | goal | person kin animal | |
wohnen | live | home | | | d
leben | live | home | person kin | | d
sitzen sitzt saß gesessen | sit | place | person kin animal | | d
stehen steht stand gestanden | stand | place | person kin animal | | d
liegen liegt lag gelegen | lie | place | animal Kind Ball Buch Tasche Schlüssel Karte | | d
bleiben bleibt blieb *geblieben | stay,remain | place | person kin animal | |
übernachten - - übernachtet | spend_the_night | place | | |
"""


@dataclass(frozen=True)
class Verb:
    """A verb with its principal parts, its English readings and what it takes.

    `stem_verb` is the infinitive without the prefix; `third` and `preterite` are the third person
    singular without it; `participle` is the whole second participle.
    """

    stem_verb: str
    prefix: str
    third: str
    preterite: str
    participle: str
    auxiliary: str
    reflexive: bool
    fixed: str
    fixed_negative: str
    english: tuple[str, ...]
    frame: str
    subjects: tuple[Noun, ...]
    objects: tuple[Noun, ...]
    flags: str

    @property
    def infinitive(self) -> str:
        """Return the infinitive, prefix included."""
        return self.prefix + self.stem_verb

    @property
    def zu_infinitive(self) -> str:
        """Return the infinitive with zu, which stands after a separable prefix."""
        return f"{self.prefix}zu{self.stem_verb}" if self.prefix else f"zu {self.stem_verb}"


def stem(infinitive: str) -> str:
    """Return the stem of an infinitive in -en or -n."""
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def needs_e(base: str) -> bool:
    """Tell whether a stem takes -e- before -t and -st (arbeitet, öffnet, but lernt)."""
    cluster = base[-1:] in "mn" and base[-2:-1] not in "aeiouäöülrmnh"
    return base[-1:] in "td" or cluster or base.endswith("chn")


def _inseparable(infinitive: str) -> bool:
    starts = infinitive.startswith(("be", "ver", "er", "ent", "zer", "ge", "emp", "wieder"))
    return infinitive.endswith("ieren") or (starts and infinitive not in ("bellen", "beten"))


def verb(parts: str, english: str = "be", frame: str = "-", flags: str = "") -> Verb:
    """Build a verb from its principal parts as the table of this module writes them."""
    return _parse(" | ".join((parts, english, frame, "", "", flags)))


def _parse(line: str) -> Verb:
    parts, english, frame, subjects, objects, flags = (cell.strip() for cell in line.split("|"))
    words = parts.split()
    reflexive = words[0] == "sich"
    if reflexive:
        words.pop(0)
    infinitive, fixed, negative, prefix = words.pop(0), "", "", ""
    if infinitive.startswith("("):
        complement, infinitive = infinitive[1:].split(")")
        fixed, negative = complement.replace("_", " ").split("/")
    if "+" in infinitive:
        prefix, infinitive = infinitive.split("+")
    base = stem(infinitive)
    link = "e" if needs_e(base) else ""
    weak_participle = ("" if _inseparable(infinitive) else "ge") + base + link + "t"
    sein = bool(words) and words[-1].startswith("*")
    third, preterite, participle = ["-", "-", *words] if len(words) == 1 else words or "---"
    participle = participle.lstrip("*")
    return Verb(
        stem_verb=infinitive,
        prefix=prefix,
        third=base + link + "t" if third == "-" else third,
        preterite=base + link + "te" if preterite == "-" else preterite,
        participle=prefix + (weak_participle if participle in ("-", "") else participle),
        auxiliary="sein" if sein else "haben",
        reflexive=reflexive,
        fixed=fixed,
        fixed_negative=negative,
        english=tuple(reading.replace("_", " ") for reading in english.split(",")),
        frame=frame,
        subjects=select(subjects or "person kin"),
        objects=select(objects),
        flags=flags,
    )


VERBS: tuple[Verb, ...] = tuple(_parse(line) for line in _TABLE.strip().splitlines())
