"""Passes that a ledger in a file of its own speaks of, held back until it is known what they mean.

An entry of a case is about that case, so that each pass is XPASS at once. One of another file may speak of many cases
by a pattern. It holds while one of its variants fails. It is fixed, and its passes are XPASS, when all of them that the
files hold have run and none fails. Where some were left out nothing is known, and a pass is PASS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from runner.cases.model import Known, Variant
from runner.record.events import Key, VariantFinished
from runner.session.plan import Planned
from runner.verdict.policy import applies, applying, effects, shows_sometimes, surprise
from runner.verdict.signature import assess

Place = tuple[int, str]
"""An entry, by its identity, under one torch."""


class HeldPasses:
    """The entries of ledgers in files of their own, and the passes that wait for them."""

    def __init__(
        self,
        planned: Sequence[Planned],
        left_out: Iterable[tuple[Variant, str]] = (),
        past: Iterable[VariantFinished] = (),
    ) -> None:
        """Hold nothing yet.

        Args:
            planned: all variants of the run.
            left_out: what the files hold beside them, each with a version of torch.
            past: results of a run that goes on.
        """
        self._entries = {
            (item.variant.id, item.environment.torch): applying(item.variant, item.environment.torch)
            for item in planned
            if item.variant.ledger
        }
        self._shared = {id(entry) for item in planned for entry in item.variant.ledger if not shows_sometimes(entry)}
        self._waiting = Counter(place for key in self._entries for place in self._places(key))
        # Those that hold, or of which nothing will be known.
        self._settled = {
            (id(entry), torch)
            for variant, torch in left_out
            for entry in variant.ledger
            if id(entry) in self._shared and applies(entry, variant, torch)
        }
        self._held: dict[Key, VariantFinished] = {}
        for event in past:
            self._note(event)

    def take(self, event: VariantFinished) -> Iterator[VariantFinished]:
        """Yield what can be told now that this result is there: the result, and passes that were held back."""
        is_news = self._note(event)
        if event.verdict == "PASS":
            self._held[event.key] = event
        else:
            yield event
        for key in [*self._held] if is_news else [event.key] if event.key in self._held else ():
            unsettled = {place: entry for place, entry in self._places(key).items() if place not in self._settled}
            if not any(self._waiting[place] for place in unsettled):
                yield _surprising(self._held.pop(key), [*unsettled.values()])

    def rest(self) -> list[VariantFinished]:
        """Return what is still held back at the end of a run that was cut short."""
        rest, self._held = self._held, {}
        return [*rest.values()]

    def _places(self, key: Key) -> dict[Place, Known]:
        return {(id(entry), key[1]): entry for entry in self._entries.get(key, ()) if id(entry) in self._shared}

    def _note(self, event: VariantFinished) -> bool:
        """Count a result, and return whether more is known of an entry now."""
        own = self._places(event.key).keys()
        self._waiting.subtract(own)
        names = (event.signature, event.signature_id)
        findings = event.findings if own and event.verdict != "INVALID" else ()
        met = effects(self._entries[event.key], findings, names) if findings else ()
        holding = {(id(entry), event.torch) for entry, effect in met if effect in ("matched", "otherwise")} & own
        is_news = bool(holding - self._settled) or not all(self._waiting[place] for place in own)
        self._settled |= holding
        return is_news


def _surprising(event: VariantFinished, entries: Sequence[Known]) -> VariantFinished:
    """Return a pass as what it is where these entries are fixed."""
    if not entries:
        return event
    verdict, span = surprise(entries[0]), entries[0].span
    place = f"{span.file}:{span.line}:{span.column}"
    return assess(replace(event, verdict=verdict.word, reason=verdict.reason, known=verdict.known, entry=place))
