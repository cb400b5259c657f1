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
    uz:uzn_Latn vi:vie_Latn xh:xho_Latn yi:ydd_Hebr yo:yor_Latn zh:zho_Hans zu:zul_Latn
"""))  # fmt: skip
"""Two letters (ISO 639-1) → the code of FLORES-200 that NLLB has; before `_` it is that of ISO 639-3."""
ISO_639_1 = NLLB.keys() | re.findall(r"\w+", """
    aa ab ae ak an as av ay ba bi bm bo br ce ch co cr cu cv dv dz ee ff fj fy gn gv ho hz ia ie ii ik io iu kg ki kj kl
    kr ks kv kw la lg li ln lu mh mo na nd ng nr nv ny oj om os pi qu rm rn rw sa sc se sg sh sm sn ss st su tg ti tk tn
    to ts tt tw ty ug ve vo wa wo yo za
""")  # fmt: skip
"""All codes of two letters, and two that were withdrawn (mo, sh)."""
_SHOWN = 8


def spellings(language: str) -> list[str]:
    """How a language may be written: `de`, `deu`, `deu_Latn`."""
    code = NLLB.get(language, language)
    return list(dict.fromkeys([language, code.partition("_")[0], code]))


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
