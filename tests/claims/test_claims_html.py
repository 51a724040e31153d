"""The page of the ledger says what the evidence says, escapes it, and is always the same."""

import re
from urllib.parse import unquote

import pytest

from normlab.claims.html import page
from normlab.claims.ledger import Entry
from normlab.claims.markdown import page as markdown
from normlab.registry import CONFIG_DIR
from tests.claims.ledgers import STUDIES, claim, compared, computed, entries, made
from tests.html_text import Text

COMMITTED = CONFIG_DIR.parent / "results" / "claims.html"
MINUS = "\N{MINUS SIGN}"


def section(text, number):
    """Return what the page says of a claim."""
    (found,) = re.findall(
        rf'<li class="claim [^"]*" id="claim-{number}".*?</details>\n</li>\n', text, re.S
    )
    return found


def test_the_same_evidence_makes_the_same_bytes():
    assert made() == made()
    assert made().endswith("</html>\n")


def test_other_evidence_makes_another_page():
    changed = entries()
    changed[3] = Entry(changed[3].claim, (computed("supports"),))
    text = page(changed, studies=STUDIES, text="claims.md")
    assert text != made()
    assert "not measured" in Text(section(made(), 12)).text
    assert "not measured" not in Text(section(text, 12)).text


def test_verdicts_are_counted_in_words():
    text = Text(made()).text
    for count in ("1 supported", "1 contradicted", "1 partly", "1 not measured"):
        assert f" {count} " in text
    assert "Each of 4 claims" in text


def test_a_claim_says_all_that_the_markdown_says():
    text = Text(made()).text.replace(MINUS, "-").replace("\N{EN DASH}", "-")
    for entry in entries():
        assert entry.claim.statement in text and entry.strength in text
    care = markdown([]).partition("**Read with care.** ")[2].partition("\n\n")[0]
    assert " ".join(care.replace("`", "").split()) in " ".join(text.split())


def test_a_comparison_shows_difference_means_seeds_and_records():
    text = section(made(), 2)
    said = Text(text).text
    assert f"{MINUS}2.27 [{MINUS}3.45, {MINUS}1.09]" in said
    assert "34.6 against 36.8; norm=bn diverged 1/3" in said
    assert "3 seeds" in said and "toy scale=cpu pre norm.padding=include" in said
    assert "1 more that decides nothing yet" in said and "too few seeds" in said
    links = [link for link in Text(text).links if link.endswith("record.json")]
    folder = "norms/cpu/records/toy-ln-pre-0123456789"
    assert links[:3] == [f"{folder}/seed{seed}/record.json" for seed in (1, 2, 3)]
    assert len(links) == 6 + 2
    assert "LOG.md" in Text(text).links


def test_computed_figures_are_shown_without_the_noise_of_rounding():
    said = Text(section(made(), 1)).text
    assert "moved = 0.2123, noise = 0" in said and "e-17" not in made()


@pytest.mark.parametrize(
    ("number", "commands"),
    [
        (1, ["normlab claims 1", "normlab claims 1 --check"]),
        (2, ["normlab claims 2", STUDIES["norms"], "normlab claims 2 --runs-dir runs"]),
        (3, ["normlab claims 3"]),
    ],
)
def test_commands_are_those_that_there_are(number, commands):
    (listed,) = re.findall(r'<ul class="commands">(.*?)</ul>', section(made(), number), re.S)
    assert re.findall("<code>(.*?)</code>", listed) == commands


def test_what_is_missing_is_said():
    said = Text(section(made(), 12)).text
    assert "missing There is no task of pictures." in said


def test_verdicts_differ_by_word_and_by_shape():
    text = made()
    drawn = {
        word: shape
        for shape, word in re.findall(r'<use href="#icon-(\w+)"/></svg>([a-z ]+)</span>', text)
    }
    verdicts = ("supported", "contradicted", "partly", "not measured")
    assert len({drawn[verdict] for verdict in verdicts}) == 4
    assert drawn["supports"] == drawn["supported"] and "undecided" in drawn
    assert all(f'<symbol id="icon-{shape}"' in text for shape in drawn.values())


def test_what_is_written_is_escaped():
    odd = "<b>&\"'</script><img src=x onerror=alert(1)>"
    piece = compared(
        "supports", question=odd, finding=odd, setting=odd, records=(f"results/a/{odd}/seed1",)
    )
    strange = claim(
        5, statement=odd, figure=odd, expected=odd, literature=odd, missing=odd, see=(odd,)
    )
    ledger = [Entry(strange, (piece, compared("no records", question=odd)))]
    text = page(ledger, studies={}, text="claims.md")
    read = Text(text)
    assert not {"b", "img"} & {tag for tag, _ in read.tags}
    assert not any("onerror" in attributes for _, attributes in read.tags)
    assert read.text.count(odd) >= 8


def test_code_in_a_text_is_code():
    text = page([Entry(claim(1, expected="`a<b` is less"), ())], studies={}, text="claims.md")
    assert "<dd><code>a&lt;b</code> is less</dd>" in text


def test_nothing_is_loaded_from_anywhere():
    read = Text(made())
    assert not {"link", "img", "iframe", "base"} & {tag for tag, _ in read.tags}
    assert not any("src" in attributes for _, attributes in read.tags)
    assert all(not re.match(r"[a-z]+:|//", link) for link in read.links)
    policy = next(a["content"] for t, a in read.tags if t == "meta" and "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert len(made()) < 60_000, "no plotting library"


def test_every_link_of_the_committed_page_leads_somewhere():
    read = Text(COMMITTED.read_text("utf-8"))
    names = {attributes["id"] for _, attributes in read.tags if "id" in attributes}
    assert {f"claim-{number}" for number in range(1, 42)} <= names
    assert sum(link.endswith("record.json") for link in read.links) > 100
    for link in set(read.links):
        path, _, fragment = link.partition("#")
        assert path or fragment in names, link
        assert (COMMITTED.parent / unquote(path)).exists(), link


def test_an_identifier_is_given_once():
    names = re.findall(r'\sid="([^"]+)"', COMMITTED.read_text("utf-8"))
    assert len(names) == len(set(names))


def test_a_claim_of_both_kinds_is_decided_by_both():
    both = claim(7, check="a.b", study="norms")
    text = page([Entry(both, ())], studies=STUDIES, text="claims.md")
    assert "<code>normlab claims 7 --check --runs-dir runs</code>" in text
