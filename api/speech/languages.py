"""What a request's `language` means: a language's English name in any case, or a BCP-47 tag (speech_api §1.1)."""

from speechmill.api.errors import ApiError
from speechmill.models.card import ModelCard

AUTO = "Auto"
_NAMES = {
    "af": "Afrikaans", "ar": "Arabic", "be": "Belarusian", "bg": "Bulgarian", "bn": "Bengali", "bs": "Bosnian",
    "ca": "Catalan", "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish",
    "fil": "Filipino", "fr": "French", "ga": "Irish", "gl": "Galician", "gu": "Gujarati", "he": "Hebrew",
    "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "is": "Icelandic",
    "it": "Italian", "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "km": "Khmer", "kn": "Kannada",
    "ko": "Korean", "la": "Latin", "lo": "Lao", "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian",
    "ml": "Malayalam", "mn": "Mongolian", "mr": "Marathi", "ms": "Malay", "mt": "Maltese", "my": "Burmese",
    "nb": "Norwegian", "ne": "Nepali", "nl": "Dutch", "nn": "Norwegian", "no": "Norwegian", "pa": "Punjabi",
    "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "si": "Sinhala", "sk": "Slovak",
    "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil",
    "te": "Telugu", "th": "Thai", "tl": "Filipino", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu",
    "uz": "Uzbek", "vi": "Vietnamese", "yue": "Cantonese", "zh": "Chinese", "zu": "Zulu",
}  # fmt: skip


def choose_language(asked: str | None, card: ModelCard) -> str | None:
    """One of the card's languages, or None for the model to find out. Raises ApiError 400 `invalid_value`."""
    wanted = (asked or AUTO).strip().casefold()
    if wanted in ("", AUTO.casefold()):
        return None
    by_name = {name.casefold(): name for name in card.languages}
    by_tag = dict(zip(card.language_tags, card.languages, strict=False))
    tag = wanted.replace("_", "-").partition("-")[0]
    found = by_tag.get(wanted) or by_name.get(wanted) or by_tag.get(tag) or by_name.get(_NAMES.get(tag, "").casefold())
    if found is None:
        message = f"model {card.id} speaks {', '.join([AUTO, *card.languages])}"
        raise ApiError(400, "invalid_value", message, "language")
    return found
