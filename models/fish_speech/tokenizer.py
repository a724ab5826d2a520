"""Text → ids. Special tokens are found by name, so nothing here depends on a checkpoint's numbers."""

import re
from pathlib import Path
from typing import Any

from speechmill.models.stage import CheckpointError

_START, _END, _VOICE = "<|im_start|>", "<|im_end|>", "<|voice|>"
"""What prompts are put together with."""
_CONTROL = re.compile(r"<\|.*\|>")
_SEMANTIC = re.compile(r"<\|semantic:(\d+)\|>")


class Tokenizer:
    """A checkpoint's byte-level BPE."""

    def __init__(self, folder: Path, rows: int) -> None:
        """`rows`: of the vocabulary. Raises CheckpointError for a folder without a usable tokenizer, or with one that
        needs more.
        """
        from transformers import PreTrainedTokenizerFast  # takes seconds to import

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(f"{path} is missing")
        try:
            self._tokenizer: Any = PreTrainedTokenizerFast(tokenizer_file=str(path))  # type: ignore[no-untyped-call]
        except Exception as error:  # the Rust side raises bare Exception
            raise CheckpointError(f"cannot read {path}: {error}") from None
        self._vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        self._path = path
        self._rows = rows
        named = [self.named(token) for token in (_START, _END, _VOICE)]
        spelt = (id for token, id in self._vocabulary.items() if not _CONTROL.fullmatch(token))
        self._ensure_row(max([*named, *spelt]))
        self.end = self.named(_END)

    def encode(self, text: str) -> list[int]:
        """The ids of one piece of text, nothing added."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def named(self, token: str) -> int:
        """Id of a special token. Raises CheckpointError if there is none."""
        if token not in self._vocabulary:
            raise CheckpointError(f"{self._path} has no token {token}")
        return self._vocabulary[token]

    def first_semantic(self, configured: tuple[int, int], codebook: int) -> int:
        """Id of code 0's semantic token; the others follow it. `configured`: where the tokenizer does not name them.

        Raises CheckpointError if the ids are not `codebook` many in a row of the vocabulary.
        """
        found = {int(match[1]): id for token, id in self._vocabulary.items() if (match := _SEMANTIC.fullmatch(token))}
        first, last = (min(found.values()), max(found.values())) if found else configured
        if any(first + code != id for code, id in found.items()) or last - first + 1 != codebook:
            raise CheckpointError(f"{self._path}: the semantic tokens {first} to {last} are not {codebook} in a row")
        self._ensure_row(last)
        return first

    def _ensure_row(self, largest: int) -> None:
        """Ids of control tokens that never come into a prompt may be what they will."""
        if largest >= self._rows:
            raise CheckpointError(f"{self._path} has token {largest}, and the config's vocabulary is {self._rows}")
