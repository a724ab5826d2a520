"""Utterances that are begun before their text is complete: what may be spoken of it goes to the unit it is for."""

import re
from collections.abc import Callable

from speechmill.api.errors import ApiError
from speechmill.api.realtime.open_unit import OpenUnit
from speechmill.api.realtime.portion import portion
from speechmill.api.speech.orders import Order

_SPOKEN = re.compile(r"[^\W_]")


class Growing:
    """Texts whose units are spoken while they come, each as much as the model can speak at once; `begin` makes one.

    An utterance that cannot go on fails with the unit that it is at; what follows of it is left out.
    """

    def __init__(self, order: Order, begin: Callable[[], OpenUnit]) -> None:
        """`order`: what some text would become."""
        self._most_chars = order.terms.max_chars
        self._unit_chars = order.card.segments.max_chars
        self._refused = re.compile(order.card.parameters.refused_input or r"(?!)")
        self._begin = begin
        self.forget()

    def forget(self) -> None:
        self._said = ""
        self._text = ""
        """From the beginning of the unit."""
        self._passed = 0
        """Characters of it that the unit has."""
        self._unit: OpenUnit | None = None
        self._begun = self._failed = False

    @property
    def chars(self) -> int:
        return len(self._text) - self._passed

    @property
    def pending(self) -> bool:
        return bool(self._said.strip())

    def feed(self, text: str) -> None:
        if self._has_failed():
            return
        self._said = (self._said + text).lstrip()
        self._text += text
        if fault := self._fault():
            self._failed = True
            (self._unit or self._begin()).fail(fault)
            return
        self._pass_on(whole=False)

    def flush(self) -> None:
        if not self._has_failed():
            self._pass_on(whole=True)
        self.forget()

    def _has_failed(self) -> bool:
        """Also when its unit could not be spoken."""
        self._failed = self._failed or (self._unit is not None and self._unit.failed)
        return self._failed

    def _fault(self) -> ApiError | None:
        if len(self._said) > self._most_chars:
            message = f"an utterance has at most {self._most_chars} characters; what follows is left out"
            return ApiError(400, "input_too_long", message, "input")
        if self._refused.search(self._said):
            return ApiError(400, "unsupported_parameter", "this model does not take the tags in this text", "input")
        return None

    def _pass_on(self, whole: bool) -> None:
        if self._unit is not None and self._unit.spoken:  # the model was through before the text was
            self._leave_unit(self._passed)
        while self._at_text():
            chars, ends = portion(self._text, self._unit_chars, whole)
            ends = ends or whole
            if self._unit is None and self._can_begin(self._text[:chars], ends):
                self._unit, self._begun = self._begin(), True
            if self._unit is not None and chars > self._passed:
                self._unit.append(self._text[self._passed : chars])
                self._passed = chars
            if not ends:
                return
            self._leave_unit(chars)

    def _leave_unit(self, chars: int) -> None:
        """The unit, if there is one, has all of its text: so many characters."""
        if self._unit is not None:
            self._unit.complete()
        self._unit, self._text, self._passed = None, self._text[chars:], 0

    def _at_text(self) -> bool:
        """Whether there is any, in the unit that is open or where the next one begins."""
        if self._unit is None:
            self._text = self._text.lstrip()
        return bool(self._text)

    def _can_begin(self, text: str, ends: bool) -> bool:
        """What holds no letter and no digit is no unit of its own, unless it is all there is."""
        return bool(_SPOKEN.search(text)) or (ends and not self._begun)
