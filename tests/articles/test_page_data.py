"""The data of the interactive page: verdicts, sentences and languages."""

import json
import re

import yaml

from normlab.articles.article import PIECES
from tests.articles.conftest import ROOT, named


def test_every_piece_is_in_an_article_and_every_text_in_both_languages(data):
    bodies = [s["body"] for article in data["articles"] for s in article["sections"]]
    passages = [passage for body in bodies for passage in body]
    live = [each["piece"] for each in passages if "piece" in each]
    assert sorted(live) == sorted(PIECES)
    texts = [each[0] for each in passages if isinstance(each, list)]
    chinese = re.compile("[\u4e00-\u9fff]")
    assert all(all(text) for text in texts) and len(texts) > 150
    once = [re.sub("[我爱吃]", "", text[0]) for text in texts if len(text) == 1]
    assert not any(map(chinese.search, once))

    def check(node, key):
        if isinstance(node, dict):
            for name, each in node.items():
                check(each, f"{key}.{name}")
        elif isinstance(node[0], list):
            for each in node:
                check(each, key)
        else:
            assert len(node) == 2 and all(isinstance(text, str) for text in node), key
            names = [sorted(re.findall(r"\{\w+\}", text)) for text in node]
            assert names[0] == names[1], key
            assert not chinese.search(re.sub("[我爱吃]", "", node[1])), key

    words = ROOT / "normlab" / "articles" / "templates" / "page.yaml"
    check(yaml.safe_load(words.read_text("utf-8")), "words")


def test_verdicts_in_explanations_match_the_ledger(data):
    ledger = json.loads((ROOT / "results" / "claims.json").read_text("utf-8"))
    known = {p["statement"]: p["verdict"] for claim in ledger for p in claim["parts"]}
    judged = [
        explanation
        for explanation in data["explanations"]
        if explanation["kind"] in ("check", "runs")
    ]
    parts = [explanation for explanation in judged if explanation["statement"][-1] in known]
    assert len(parts) > 80 and all(known[a["statement"][-1]] == a["verdict"] for a in parts)


def test_the_answer_of_a_claim_is_shown_where_half_of_its_parts_are_cited(data):
    body = [e for each in data["articles"] for section in each["sections"] for e in section["body"]]
    rows = [named(data, "sentence", each) for each in body if isinstance(each, list)]
    whole = {each["text"][-1]: each.get("claims", []) for each in rows}
    assert whole["BERT-base has 110 million parameters."] == []  # one part of ten
    assert whole["Stable with a batch of 1, the same in training and inference."] == [15]
    shown = {claim for each in whole.values() for claim in each}
    assert shown <= {int(claim) for claim in data["claims"]}


def test_explanations_of_checks_and_sources_have_chinese_text(data):
    explanations = [each for each in data["explanations"] if each["kind"] in ("check", "sources")]
    assert len(explanations) > 60
    for explanation in explanations:
        findings = [data["findings"][number] for number in explanation.get("findings", ())]
        texts = [
            each[0]
            for each in (explanation["statement"], explanation.get("finding", [""]), *findings)
        ]
        assert re.search("[\u4e00-\u9fff]", "".join(texts)), explanation


def test_explanations_of_unmeasured_parts_show_only_the_command(data):
    commands = [each["command"] for each in data["explanations"] if "command" in each]
    assert len(commands) > 5 and not any("(" in each for each in commands)


def test_grades_and_counts_of_seeds_are_in_chinese(data):
    assert all(zh != en or en == "D" for zh, en in data["grades"])
    assert not any("layers" in zh or "training" in zh for zh, _ in data["grades"])
    counts = [
        a["finding"] for a in data["explanations"] if "trained: " in a.get("finding", [""])[-1]
    ]
    assert len(counts) > 5 and all(zh.startswith("训练成功的种子数：") for zh, _ in counts)


def test_findings_name_their_quantity_and_small_differences_mention_the_margin(data):
    from_runs = [
        each for each in data["explanations"] if each["kind"] in ("runs", "timing", "scores")
    ]
    assert len(from_runs) > 100
    words = ("在界限", "之内，差别太小，视为没有差别"), ("within the margin", "too small to count")
    for explanation in from_runs:
        for text, inside in zip(explanation["finding"], words, strict=True):
            assert explanation["kind"] == "scores" or not re.match(r"\W?\d", text)
            if explanation.get("verdict") == "no difference":
                assert all(each in text for each in inside), text
        zh, en = explanation["finding"]
        assert not re.search(r"\b[a-z]{2,} [a-z]{3,}\b(?![=.])", zh), zh
        assert not re.search("[\u4e00-\u9fff]", en), en


def test_negative_numbers_have_a_typographic_minus_sign(page):
    text = page.evaluate("JSON.stringify([DATA.explanations, DATA.findings, DATA.articles])")
    assert "\u2212" in text and not re.search(r"[\s(\[（]-\d", re.sub("`[^`]*`", "", text))
