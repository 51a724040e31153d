"""Language codes: one language in one script, whatever its code; and what they decide."""

import pytest

from normlab.data.corpus import FolderCorpus
from normlab.data.languages import language_of
from normlab.data.vocabulary import moses_text


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
def test_every_code_of_a_language_in_a_script_is_the_same_language(codes, language):
    assert {language_of(code, "key") for code in codes.split()} == {language}


def test_text_in_thai_khmer_lao_burmese_chinese_and_japanese_has_no_spaces_between_words():
    unspaced = ("zh", "yue", "ja", "th", "km", "lo", "my", "tha", "khm", "lao", "mya")
    assert not any(language_of(code, "key").spaced for code in unspaced)
    assert all(language_of(code, "key").spaced for code in ("de", "ko", "ar", "hi", "vi"))


@pytest.mark.parametrize(
    ("code", "meant"),
    [("cn", "zh"), ("jp", "ja"), ("cz", "cs"), ("ua", "uk"), ("dk", "da"), ("vn", "vi")],
)
def test_the_code_of_a_country_is_refused_with_its_language(tmp_path, code, meant):
    with pytest.raises(ValueError, match=rf"target_language={code} .*Did you mean {meant}\?"):
        FolderCorpus(data_dir=str(tmp_path), source_language="de", target_language=code, form="raw")


@pytest.mark.parametrize("code", ["xx", "english", "", "und", "zxx", "mul", "de_QQQQ", "../../de"])
def test_a_code_of_no_language_is_refused_by_its_key(tmp_path, code):
    with pytest.raises(ValueError, match=r"^task\.corpus\.source_language=\S* is not the code"):
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
def test_detokenized_text_is_the_same_for_every_code_of_a_language(codes, tokens, text):
    found = {moses_text([tokens], language_of(code, "key"))[0] for code in codes.split()}
    assert len(found) == 1 and (text is None or found == {text})


def test_two_sides_with_one_code_are_refused(tmp_path):
    with pytest.raises(ValueError, match="source_language and target_language are both de"):
        FolderCorpus(data_dir=str(tmp_path), source_language="de", target_language="de", form="raw")
