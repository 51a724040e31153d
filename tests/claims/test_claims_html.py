"""The page of the ledger says what the evidence says, escapes it, and is always the same."""

import re
from urllib.parse import unquote

from normlab.claims.claim import load_all
from normlab.claims.evidence import read_computed
from normlab.claims.ledger import ledger
from normlab.claims.pages import html, markdown
from normlab.claims.runs import Runs
from normlab.config.registry import CONFIG_DIR
from tests.claims.ledgers import (
    COMMAND,
    compared,
    computed,
    decided,
    entries,
    entry,
    made,
    open_outcome,
)
from tests.html_text import Text

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
    assert markdown(entries()) == markdown(entries())


def test_other_evidence_makes_another_page():
    changed = entries()
    changed[4] = entry(12, decided("pictures", computed("supported")))
    text = html(changed, text="claims.md")
    assert text != made() and markdown(changed) != markdown(entries())
    assert "not measured" in Text(section(made(), 12)).text
    assert "not measured" not in Text(section(text, 12)).text


def test_verdicts_are_counted_in_words():
    text = Text(made()).text
    for name in ("supported", "contradicted", "mixed", "undecided", "not measured"):
        assert f" 1 {name} " in text
    assert "Each of 5 claims" in text


def test_a_claim_says_all_that_the_markdown_says():
    text = Text(made()).text.replace(MINUS, "-").replace("\N{EN DASH}", "-")
    for each in entries():
        assert each.claim.statement in text and each.by_parts in text and each.grades in text
    care = markdown([]).partition("**Read with care.** ")[2].partition("\n\n")[0]
    assert " ".join(care.replace("`", "").split()) in " ".join(text.split())


def test_a_verdict_is_never_without_its_grade():
    assert "contradicted (C: Multi30k, 2+2 layers)" in markdown(entries()).replace("**", "")
    said = Text(section(made(), 2)).text
    assert "contradicted: worse" not in said and "worse: contradicted" in said
    assert "(C: Multi30k, 2+2 layers)" in said.partition("literature")[0]


def test_a_mixed_claim_names_its_parts():
    assert "**mixed** (worse: supported; size: undecided; C: Multi30k" in markdown(entries())
    assert "worse: supported; size: undecided" in Text(section(made(), 3)).text


def test_a_contrast_shows_difference_means_p_and_its_correction_seeds_and_records():
    text = section(made(), 2)
    said = Text(text).text
    assert f"{MINUS}2.27 [{MINUS}3.45, {MINUS}1.09]" in said
    assert "34.6 against 36.8" in said and "p 0.001, corrected 0.012" in said
    assert "5 seeds, 99 %" in said
    links = [link for link in Text(text).links if link.endswith("record.json")]
    folder = "norms/cpu/records/toy-ln-pre-0123456789"
    assert links[:5] == [f"{folder}/seed{seed}/record.json" for seed in range(1, 6)]
    assert len(links) == 30
    assert "LOG.md" in Text(text).links


def test_secondary_evidence_is_folded_away():
    shown, _, folded = section(made(), 2).partition('<details class="more">')
    assert "1 secondary, never counted" in Text(folded).text and "1 [0, 2]" in Text(folded).text
    assert "1 [0, 2]" not in Text(shown).text
    text = markdown(entries())
    assert text.count("<details>") == text.count("</details>") == 1
    assert "1 [0, 2]" in text.partition("<details>")[2].partition("</details>")[0]


def test_what_is_not_measured_says_why_and_what_would_measure_it():
    said = Text(section(made(), 12)).text
    assert "There is no task of pictures." in said
    assert COMMAND in said and "30 runs, about 2.0 h" in said
    assert "decides nothing: tested weights chosen by loss: 3" in said
    text = markdown(entries())
    assert f"- words, to measure: `{COMMAND}` (30 runs, about 2.0 h)" in text


def test_verdicts_differ_by_word_and_by_shape():
    text = made()
    drawn = {
        word: shape
        for shape, word in re.findall(r'<use href="#icon-(\w+)"/></svg>([a-z ]+)</span>', text)
    }
    verdicts = ("supported", "contradicted", "mixed", "undecided", "not measured")
    assert len({drawn[verdict] for verdict in verdicts}) == 5
    assert drawn["no difference"] == drawn["contradicted"]
    assert all(f'<symbol id="icon-{shape}"' in text for shape in drawn.values())


def test_what_is_written_is_escaped():
    odd = "<b>&\"'</script><img src=x onerror=alert(1)>"
    shown = compared("supported", found=odd, detail=odd, setting=odd, records=(f"results/{odd}/s",))
    missing = open_outcome(reason=odd, command=odd, cost=odd, excluded=(odd,))
    strange = entry(
        5,
        decided("a", shown, statement=odd),
        decided("b", missing),
        statement=odd,
        figure=odd,
        literature=odd,
        see=(odd,),
    )
    read = Text(html([strange], text="claims.md"))
    assert not {"b", "img"} & {tag for tag, _ in read.tags}
    assert not any("onerror" in attributes for _, attributes in read.tags)
    assert read.text.count(odd) >= 10


def test_code_in_a_text_is_code():
    text = html([entry(1, literature="`a<b` is less")], text="claims.md")
    assert "<dd><code>a&lt;b</code> is less</dd>" in text


def test_nothing_is_loaded_from_anywhere():
    read = Text(made())
    assert not {"link", "img", "iframe", "base"} & {tag for tag, _ in read.tags}
    assert not any("src" in attributes for _, attributes in read.tags)
    assert all(not re.match(r"[a-z]+:|//", link) for link in read.links)
    policy = next(a["content"] for t, a in read.tags if t == "meta" and "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert len(made()) < 100_000, "no plotting library"


def test_the_page_of_the_committed_evidence_has_whole_links_and_unique_identifiers():
    results = CONFIG_DIR.parent / "results"
    computed = read_computed(results / "computed.json")
    runs = Runs.read([results], root=CONFIG_DIR.parent, configs=CONFIG_DIR, computed=computed)
    read = Text(html(ledger(load_all(CONFIG_DIR / "claim"), runs), text="claims.md"))
    names = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(names) == len(set(names))
    for link in set(read.links):
        path, _, fragment = link.partition("#")
        assert path or fragment in names, link
        assert (results / unquote(path)).exists(), link
