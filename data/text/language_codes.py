"""Codes of languages as pretrained translators write them: `de` of a corpus is `deu_Latn` in NLLB, `deu` in OPUS-MT."""

import re
from collections.abc import Collection, Mapping

from data.errors import DataError

NLLB = dict(re.findall(r"(\w+):(\w+)", """
    af:afr_Latn am:amh_Ethi ar:arb_Arab az:azj_Latn be:bel_Cyrl bg:bul_Cyrl bn:ben_Beng bs:bos_Latn ca:cat_Latn
    cs:ces_Latn cy:cym_Latn da:dan_Latn de:deu_Latn el:ell_Grek en:eng_Latn eo:epo_Latn es:spa_Latn et:est_Latn
    eu:eus_Latn fa:pes_Arab fi:fin_Latn fo:fao_Latn fr:fra_Latn ga:gle_Latn gd:gla_Latn gl:glg_Latn gu:guj_Gujr
    ha:hau_Latn he:heb_Hebr hi:hin_Deva hr:hrv_Latn ht:hat_Latn hu:hun_Latn hy:hye_Armn id:ind_Latn ig:ibo_Latn
    is:isl_Latn it:ita_Latn ja:jpn_Jpan jv:jav_Latn ka:kat_Geor kk:kaz_Cyrl km:khm_Khmr kn:kan_Knda ko:kor_Hang
    ku:kmr_Latn ky:kir_Cyrl lb:ltz_Latn lo:lao_Laoo lt:lit_Latn lv:lvs_Latn mg:plt_Latn mi:mri_Latn mk:mkd_Cyrl
    ml:mal_Mlym mn:khk_Cyrl mr:mar_Deva ms:zsm_Latn mt:mlt_Latn my:mya_Mymr nb:nob_Latn ne:npi_Deva nl:nld_Latn
    nn:nno_Latn no:nob_Latn oc:oci_Latn or:ory_Orya pa:pan_Guru pl:pol_Latn ps:pbt_Arab pt:por_Latn ro:ron_Latn
    ru:rus_Cyrl sd:snd_Arab si:sin_Sinh sk:slk_Latn sl:slv_Latn so:som_Latn sq:als_Latn sr:srp_Cyrl sv:swe_Latn
    sw:swh_Latn ta:tam_Taml te:tel_Telu tg:tgk_Cyrl th:tha_Thai tl:tgl_Latn tr:tur_Latn uk:ukr_Cyrl ur:urd_Arab
    uz:uzn_Latn vi:vie_Latn xh:xho_Latn yi:ydd_Hebr yo:yor_Latn zh:zho_Hans zu:zul_Latn bo:bod_Tibt dz:dzo_Tibt
    yue:yue_Hant
"""))  # fmt: skip
"""Two letters (ISO 639-1; `yue` has none) → the code of FLORES-200 that NLLB has; before `_` that of ISO 639-3."""
ISO_639_1 = {*NLLB} - {"yue"} | {*re.findall(r"\w+", """
    aa ab ae ak an as av ay ba bi bm bo br ce ch co cr cu cv dv dz ee ff fj fy gn gv ho hz ia ie ii ik io iu kg ki kj kl
    kr ks kv kw la lg li ln lu mh mo na nd ng nr nv ny oj om os pi qu rm rn rw sa sc se sg sh sm sn ss st su tg ti tk tn
    to ts tt tw ty ug ve vo wa wo yo za
""")}  # fmt: skip
"""All codes of two letters, and two that were withdrawn (mo, sh)."""
KNOWN = frozenset({*ISO_639_1, *NLLB})
"""Codes that certainly are those of languages."""
LANGUAGE_NAMES = {
    "af": "Afrikaans", "am": "Amharic", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian",
    "bn": "Bengali", "bo": "Tibetan", "bs": "Bosnian", "ca": "Catalan", "cs": "Czech", "cy": "Welsh", "da": "Danish",
    "de": "German", "dz": "Dzongkha", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish",
    "et": "Estonian", "eu": "Basque",
    "fa": "Persian", "fi": "Finnish", "fo": "Faroese", "fr": "French", "ga": "Irish", "gd": "Scottish Gaelic",
    "gl": "Galician", "gu": "Gujarati", "ha": "Hausa", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian",
    "ht": "Haitian Creole", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "ig": "Igbo", "is": "Icelandic",
    "it": "Italian", "ja": "Japanese", "jv": "Javanese", "ka": "Georgian", "kk": "Kazakh", "km": "Khmer",
    "kn": "Kannada", "ko": "Korean", "ku": "Kurdish", "ky": "Kyrgyz", "lb": "Luxembourgish", "lo": "Lao",
    "lt": "Lithuanian", "lv": "Latvian", "mg": "Malagasy", "mi": "Maori", "mk": "Macedonian", "ml": "Malayalam",
    "mn": "Mongolian", "mr": "Marathi", "ms": "Malay", "mt": "Maltese", "my": "Burmese", "nb": "Norwegian",
    "ne": "Nepali", "nl": "Dutch", "nn": "Norwegian Nynorsk", "no": "Norwegian", "oc": "Occitan", "or": "Odia",
    "pa": "Punjabi", "pl": "Polish", "ps": "Pashto", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sd": "Sindhi", "si": "Sinhala", "sk": "Slovak", "sl": "Slovenian", "so": "Somali", "sq": "Albanian",
    "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "tg": "Tajik", "th": "Thai",
    "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese",
    "xh": "Xhosa", "yi": "Yiddish", "yo": "Yoruba", "yue": "Cantonese", "zh": "Chinese", "zu": "Zulu",
}  # fmt: skip
"""Code → English name."""
UNSPACED = frozenset(["bo", "dz", "ja", "km", "lo", "my", "th", "yue", "zh"])
"""Written without spaces between words: a letter with its marks is a word, if no segmenter finds them."""
_SHOWN = 8
_IN_BRACKETS = re.compile(r"\s*\([^()]*\)$")


def spellings(language: str) -> list[str]:
    """How a language may be written: `de`, `deu`, `deu_Latn`."""
    code = NLLB.get(language, language)
    return list(dict.fromkeys([language, code.partition("_")[0], code]))


CALLED = {code: language for language in NLLB for code in spellings(language)}
CALLED |= {name.casefold(): language for language, name in LANGUAGE_NAMES.items()}
CALLED |= dict(re.findall(r"(\w+):(\w+)", """
    alb:sq ara:ar arm:hy aze:az baq:eu bur:my chi:zh cmn:zh cze:cs dut:nl est:et fas:fa fil:tl fre:fr geo:ka ger:de
    gre:el ice:is kur:ku lav:lv mac:mk mao:mi may:ms mlg:mg mon:mn msa:ms nep:ne nor:no ori:or per:fa pus:ps rum:ro
    slo:sk sqi:sq swa:sw tib:bo uzb:uz wel:cy yid:yi iw:he ji:yi cn:zh cz:cs dk:da gr:el jp:ja ua:uk vn:vi
"""))  # fmt: skip
"""How people write a language, in small letters → its code of two letters.

The last of them are other codes of ISO 639-2 and 639-3, withdrawn ones, and those of countries which no language has.
"""


def language_called(name: str) -> str | None:
    """The code of a language, as people write it: a code, one with a region or script, or an English name.

    Args:
        name: in letters of any case.

    Returns:
        the code of a corpus, of two letters where there is one; any two or three letters are taken for a code. None:
        it is no language's.

    Examples:
        >>> [language_called(name) for name in ("de", "EN", "en-US", "deu_Latn", "German", "gsw", "a dog", "jp")]
        ['de', 'en', 'en', 'de', 'de', 'gsw', None, 'ja']
        >>> language_called("Chinese (Traditional)")
        'zh'
    """
    written = _IN_BRACKETS.sub("", name.casefold())
    code = re.split("[-_]", written)[0]
    known = CALLED.get(written) or CALLED.get(code)
    return known or (code if code.isascii() and code.isalpha() and len(code) in (2, 3) else None)


def require_language(name: str, option: str) -> str:
    """`language_called`, for an option.

    Raises:
        DataError: it is no language's.
    """
    if (code := language_called(name)) is None:
        raise DataError(f"{option}: {name!r} is no language; expected a code like en or de, or its English name")
    return code


def code_of(language: str, offered: Collection[str], chosen: Mapping[str, str], where: str) -> str:
    """The code of a language among those that a translator knows.

    Args:
        language: of the corpus, `de`.
        offered: the translator's codes.
        chosen: language → code, where somebody has chosen it.
        where: what a message begins with.

    Raises:
        DataError: the translator does not know the language, or not the code that was chosen.

    Examples:
        >>> code_of("de", ["deu_Latn", "eng_Latn"], {}, "nllb"), code_of("de", ["deu", "eng"], {}, "opus-mt")
        ('deu_Latn', 'deu')
    """
    wanted = [chosen[language]] if language in chosen else spellings(language)
    for code in wanted:
        if code in offered:
            return code
    near = [code for code in sorted(offered) if code.startswith(language)] or sorted(offered)
    known = ", ".join(near[:_SHOWN]) + (" …" if len(near) > _SHOWN else "")
    raise DataError(f"{where}: does not know the language {language!r} (as {', '.join(wanted)}); name one of its codes "
                    f"in `codes`, {{{language}: CODE}}: {known}")  # fmt: skip
