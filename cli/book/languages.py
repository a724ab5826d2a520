"""Languages as books, files and models name them: BCP 47, ISO 639-2/T, and in English."""

_NAMES = {
    "ar": ("ara", "Arabic"), "ca": ("cat", "Catalan"), "cs": ("ces", "Czech"), "da": ("dan", "Danish"),
    "de": ("deu", "German"), "el": ("ell", "Greek"), "en": ("eng", "English"), "es": ("spa", "Spanish"),
    "fi": ("fin", "Finnish"), "fr": ("fra", "French"), "he": ("heb", "Hebrew"), "hi": ("hin", "Hindi"),
    "hu": ("hun", "Hungarian"), "id": ("ind", "Indonesian"), "it": ("ita", "Italian"), "ja": ("jpn", "Japanese"),
    "ko": ("kor", "Korean"), "nb": ("nob", "Norwegian"), "nl": ("nld", "Dutch"), "no": ("nor", "Norwegian"),
    "pl": ("pol", "Polish"), "pt": ("por", "Portuguese"), "ro": ("ron", "Romanian"), "ru": ("rus", "Russian"),
    "sv": ("swe", "Swedish"), "th": ("tha", "Thai"), "tr": ("tur", "Turkish"), "uk": ("ukr", "Ukrainian"),
    "vi": ("vie", "Vietnamese"), "zh": ("zho", "Chinese"),
}  # fmt: skip
UNKNOWN = "und"


def three_letters(tag: str) -> str:
    """`und` for what is not in the table."""
    return _NAMES.get(_primary(tag), (UNKNOWN, ""))[0]


def english_name(tag: str) -> str:
    """Empty for what is not in the table."""
    return _NAMES.get(_primary(tag), (UNKNOWN, ""))[1]


def _primary(tag: str) -> str:
    return tag.replace("_", "-").partition("-")[0].casefold()
