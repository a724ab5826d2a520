"""Text → ids: the byte-level BPE of Qwen2. Whatever a text looks like, no control token comes of it."""

from pathlib import Path

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Bpe

from speechmill.models.common.growing_text import GrowingText, Span
from speechmill.models.stage import CheckpointError

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""What the model was trained with. Some versions of Transformers take another one for folders."""


class Tokenizer:
    """A checkpoint's `vocab.json` and `merges.txt`."""

    def __init__(self, folder: Path, rows: int) -> None:
        """`rows`: of the text vocabulary. Raises CheckpointError for a folder without a usable tokenizer, or with one
        that needs more.
        """
        vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
        for path in (vocabulary, merges):
            if not path.is_file():
                raise CheckpointError(f"{path} is missing")
        try:
            self._bpe = Bpe(models.BPE.from_file(str(vocabulary), str(merges)))
        except Exception as error:  # the Rust side raises bare Exception
            raise CheckpointError(f"cannot read {vocabulary} and {merges.name}: {error}") from None
        self._bpe.normalizer = normalizers.NFC()
        words = pre_tokenizers.Split(Regex(_WORDS), "isolated")
        bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._bpe.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_of])
        largest = max(self._bpe.get_vocab().values(), default=0)
        if largest >= rows:
            raise CheckpointError(f"{vocabulary} has token {largest}, and the config's text vocabulary is {rows}")

    def growing(self) -> GrowingText:
        """For a text that comes bit by bit."""
        return GrowingText(self._bpe.normalizer.normalize_str, self._spans)

    def _spans(self, text: str) -> list[Span]:
        return [span for _, span in self._bpe.pre_tokenizer.pre_tokenize_str(text)]

    def encode(self, text: str) -> list[int]:
        """The ids of one piece of text, nothing added."""
        ids: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        return ids
