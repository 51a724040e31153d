"""Language codes: equivalent codes mean one language and script, which decide how text is split."""

import pytest

from normlab.data.folder_corpus import FolderCorpus
from normlab.data.languages import Language, check_script, language_of
from normlab.data.vocabulary import moses_text, moses_tokens
from normlab.metrics.bleu import bleu_scores, scored_as


@pytest.mark.parametrize(
    ("codes", "language"),
    [
        ("zh zho zho_Hans zh-CN cmn chi zh_XX", ("zh", "Hans")),
        ("zh_TW zho_Hant cmn-Hant", ("zh", "Hant")),
        ("yue yue_Hant", ("yue", "Hant")),
        ("ja jpn jpn_Jpan ja_XX", ("ja", "Jpan")),
        ("fr fra fre fr_FR fr-CA FR", ("fr", "Latn")),
        ("pt pt_BR por_Latn", ("pt", "Latn")),
        ("ko kor ko_KR", ("ko", "Kore")),
        ("ar arb_Arab ar_AR", ("ar", "Arab")),
        ("he iw heb", ("he", "Hebr")),
        ("sr srp_Cyrl", ("sr", "Cyrl")),
    ],
)
def test_equivalent_codes_give_the_same_language_and_script(codes, language):
    assert {language_of(code, "key") for code in codes.split()} == {language}


def test_text_in_thai_khmer_lao_burmese_chinese_and_japanese_has_no_spaces_between_words():
    unspaced = ("zh", "yue", "ja", "th", "km", "lo", "my", "tha", "khm", "lao", "mya")
    assert not any(language_of(code, "key").spaced for code in unspaced)
    assert all(language_of(code, "key").spaced for code in ("de", "ko", "ar", "hi", "vi"))


@pytest.mark.parametrize(
    ("code", "meant"),
    [("cn", "zh"), ("jp", "ja"), ("cz", "cs"), ("ua", "uk"), ("dk", "da"), ("vn", "vi")],
)
def test_a_country_code_is_refused_and_the_language_code_suggested(tmp_path, code, meant):
    with pytest.raises(ValueError, match=rf"target_language={code} .*Did you mean {meant}\?"):
        FolderCorpus(data_dir=str(tmp_path), source_language="de", target_language=code, form="raw")


@pytest.mark.parametrize("code", ["xx", "english", "", "und", "zxx", "mul", "de_QQQQ", "../../de"])
def test_an_unknown_language_code_raises_an_error_that_mentions_its_key(tmp_path, code):
    with pytest.raises(ValueError, match=r"^task\.corpus\.source_language=\S* is not a language"):
        FolderCorpus(data_dir=str(tmp_path), source_language=code, target_language="de", form="raw")


@pytest.mark.parametrize(
    ("codes", "tokens", "text"),
    [
        ("fr fr_FR fra", "l' os du chien &apos; s ?", None),
        ("en en_GB eng", "the dog &apos;s bone", "the dog's bone"),
        ("zh cmn yue", "我 用 Python 3 写 代码 ， 好 。", "我用 Python 3 写代码，好。"),
        ("ja jpn", "私 は 学生 です 。", "私は学生です。"),
        ("th tha", "ฉัน รัก คุณ ok", "ฉันรักคุณ ok"),
        ("km khm", "ខ្ញុំ ស្រលាញ់ អ្នក", "ខ្ញុំស្រលាញ់អ្នក"),
        ("ko kor ko_KR", "나는 학교에 갑니다 .", "나는 학교에 갑니다."),
    ],
)
def test_equivalent_codes_detokenize_text_the_same_way(codes, tokens, text):
    found = {moses_text([tokens], language_of(code, "key"))[0] for code in codes.split()}
    assert len(found) == 1 and (text is None or found == {text})


def test_identical_source_and_target_languages_are_refused(tmp_path):
    with pytest.raises(ValueError, match="source_language and target_language are both de"):
        FolderCorpus(data_dir=str(tmp_path), source_language="de", target_language="de", form="raw")


TEXTS = {
    "Latin": "The quick brown fox jumps over it.",
    "Cyrillic": "Съешь же ещё этих мягких французских булок.",
    "Hangul": "나는 오늘 아침에 학교에 갔다가 집에 왔습니다.",
    "Hiragana": "これはとてもおもしろいほんだとおもいますよ。",
    "Cjk": "我今天早上去学校然后回家看了一本很有意思的书。",
    "Thai": "วันนี้ฉันไปโรงเรียนแล้วกลับบ้าน",
}


@pytest.mark.parametrize(
    ("code", "scripts"),
    [
        ("en", ["Latin", "Cyrillic"]),
        ("sr", ["Latin", "Cyrillic"]),
        ("kr", ["Latin", "Cyrillic"]),  # Kanuri, not Korean
        ("ko", ["Hangul", "Cjk"]),
        ("ja", ["Hiragana", "Cjk"]),
        ("zh", ["Cjk"]),
        ("th", ["Thai"]),
    ],
)
def test_text_in_a_script_that_its_language_would_split_wrongly_is_refused(code, scripts):
    for script, text in TEXTS.items():
        if script in scripts:
            check_script([text], language_of(code, "key"), "test.xx")
        else:
            with pytest.raises(ValueError, match=rf"^test\.xx is written in {script}, but"):
                check_script(["", text, text], language_of(code, "key"), "test.xx")


def test_foreign_words_in_a_text_do_not_change_its_script():
    english, chinese = (
        "We say thank you, 谢谢, and good morning.",
        "用 Python 写代码很有意思我们都喜欢它",
    )
    check_script([english], language_of("en", "key"), "test.en")
    check_script([chinese], language_of("zh", "key"), "test.zh")


def test_swapped_files_of_two_languages_are_refused(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.en").write_text(TEXTS["Cjk"], "utf-8")
        (tmp_path / f"{split}.zh").write_text(TEXTS["Latin"], "utf-8")
    corpus = FolderCorpus(
        data_dir=str(tmp_path), source_language="en", target_language="zh", form="raw"
    )
    with pytest.raises(ValueError, match=r"train\.en is written in Cjk.* swap the two files"):
        corpus.read()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("fa", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("si", "\u0dc1\u0dca\u200d\u0dbb\u0dd3 \u0dbd\u0d82\u0d9a\u0dcf"),
        ("yo", "k\u00e1\u00e0b\u1ecd\u0300 \u1ecd\u0300r\u1eb9\u0301"),
        ("hi", "\u0915\u094d\u092f\u093e \u092f\u0939"),
        ("ta", "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd \u0bae\u0bca\u0bb4\u0bbf"),
    ],
)
def test_moses_tokens_keep_words_with_joiners_and_accents_whole(code, text):
    assert moses_tokens([f"{text}, ({text})."], language_of(code, "key")) == [
        f"{text} , ( {text} ) ."
    ]


def test_javanese_script_is_refused_as_german_and_scored_character_by_character():
    lines = ["\ua9b2\ua98f\ua9a4\ua9a2" * 8]
    check_script(lines, Language("jv", "Java"), "train.jv")
    with pytest.raises(ValueError, match=r"train\.de is written in Javanese"):
        check_script(lines, language_of("de", "key"), "train.de")
    assert Language("jv", "Java").bleu_tokenizer == "char" and not Language("jv", "Java").spaced


@pytest.mark.parametrize(
    ("scripts", "tokenizer"),
    [
        ("Latn Cyrl Arab Hebr Deva Grek", "13a"),
        ("Hans Hant", "zh"),
        ("Jpan Kore Thai Laoo Khmr Mymr", "char"),
    ],
)
def test_the_script_decides_which_sacrebleu_tokenizer_scores_a_language(scripts, tokenizer):
    assert {Language("xx", script).bleu_tokenizer for script in scripts.split()} == {tokenizer}
    score = bleu_scores(["some text"], ["some text"], tokenize=tokenizer)["bleu"]
    assert scored_as(score.signature) == {"lowercase": False, "tokenize": tokenizer}
