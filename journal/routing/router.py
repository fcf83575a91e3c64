"""How a message that was added becomes the records that its routes send. Pure; the same message always gives the same
records.

Hot path. The routes of an address are found once and kept, so for a message without routes only its first bytes are
read. For a message with routes, the headers are made once for all targets, and the message is parsed only if a filter,
a template or an envelope needs more than its body and headers. If an address has only one target, and that needs no
parsing, the record is made directly.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from copy import copy
from typing import NamedTuple

from journal.errors import ConfigError, RowError
from journal.patterns import matches, parse_pattern
from journal.process.kept import KEPT_BYTES_MAX, Kept
from journal.routing.config import RoutingConfig
from journal.routing.headers import DESTINATION_HEADER, HeaderNames
from journal.routing.outcomes import Header, OutgoingRecord, RouteRefusal, UnfitError, unexpected
from journal.routing.parts import RouteConfig
from journal.routing.quick import Quick, QuickHeaders
from journal.routing.selector.selector import Selector
from journal.routing.sending import Body, Context, MessageSending, parsed, trail_of
from journal.routing.target import Target
from journal.routing.view import MessageFields
from journal.store.model import Value
from journal.v1 import store_pb2 as pb
from journal.words import called, counted, first_few, shortened

__all__ = ["Body", "RouteVerdict", "Router"]

_ADDRESS_TAG = 0x0A
_SHORT = 0x80
_NOTHING: tuple[()] = ()
_TOLD_CHARACTERS_MAX = 40
_Plain = Callable[[int, bytes, Quick], OutgoingRecord | None]


class RouteVerdict(NamedTuple):
    """The decision of one route about a message, for `routes test`."""

    route: str
    verdict: str


class Router:
    """The routes of a journal. Any number of threads may use it at the same time; they share the names that are
    kept."""

    def __init__(
        self,
        config: RoutingConfig,
        *,
        journal: str,
        own_topics: Container[str],
        bytes_max: Mapping[str, int] | None = None,
        replay_of: str = "",
    ) -> None:
        """`own_topics` are the journal's topics; routes send nothing there. `bytes_max` has the max.message.bytes of
        topics; the caller may change it later. Bodies of large messages cannot be read here: `reading` gives a router
        that can.

        With `replay_of` only the route of that name sends, and its records are marked as replayed. Routes before it
        with `stop` still keep their messages from it. Raises ConfigError, also if there is no such route.
        """
        names, known = HeaderNames(), {} if bytes_max is None else bytes_max
        trail, _ = trail_of(pb.Message(), journal)
        quick, replayed = QuickHeaders(names), bool(replay_of)
        self._context = Context(config, journal, own_topics, known, None, replayed, names, quick, trail)
        self._routes = [_ReadyRoute(route, self._context) for route in config.routes]
        if replay_of:
            self._routes = _up_to(replay_of, self._routes, journal)
        self._of_address: Kept[bytes, tuple[Header, tuple[_ReadyRoute, ...], _Plain | None]] = Kept(4 * KEPT_BYTES_MAX)
        """For each address: the record header that names it, its routes, and a fast way to make the record, or None.

        There is a fast way only if the routes send one plain record for each message. It works for most messages.
        """

    def reading(self, body: Body | None) -> Router:
        """This router, with `body` to read large messages. Both share all else, also the names that are kept."""
        router = copy(self)
        router._context = self._context._replace(body=body)
        return router

    def route(self, message_id: int, data: bytes) -> Sequence[OutgoingRecord | RouteRefusal]:
        """The outcomes of a message's routes, in the order of the routes. `data` is the data of its MESSAGE record.
        Raises RowError."""
        # protobuf writes fields in order, so the address comes first
        if len(data) > 1 and data[0] == _ADDRESS_TAG and data[1] < _SHORT:
            end = 2 + data[1]
            address = data[2:end]
        else:
            end, address = len(data), parsed(data).address.encode()
        try:
            destination, routes, plain = self._of_address[address]
        except KeyError:
            destination, routes, plain = self._routes_of(address)
        quick = None
        if plain is not None:
            quick = self._context.quick.encoded(destination, message_id, data, end)
            if quick is not None and (outgoing := plain(message_id, data, quick)) is not None:
                return [outgoing]
        if not routes:
            return _NOTHING
        sending = MessageSending(message_id, data, self._context)
        out: list[OutgoingRecord | RouteRefusal] = []
        is_made = False
        for route in routes:
            fault = None
            try:
                if route.selector is not None and not route.selects(sending):
                    continue
            except UnfitError as error:
                fault = error
            if not is_made:
                sending.make(destination, end, quick)
                is_made = True
            if fault is not None:
                out += [target.refusal(fault, "", sending) for target in route.targets[:1]]
                continue
            for target in route.targets:
                out.append(target.outcome(sending))
            if route.stop:
                break
        return out

    def explain(self, message_id: int, data: bytes) -> list[RouteVerdict]:
        """The decision of each route about a message."""
        view = MessageFields(message_id, parsed(data))
        verdicts: list[RouteVerdict] = []
        stopped = ""
        for route in self._routes:
            if stopped:
                verdict = f"not asked: {stopped} stops"
            elif not matches(route.pattern, view.message.address):
                verdict = "no: another address"
            else:
                value = True if route.selector is None else route.selector.value(view.value)
                verdict = "yes" if value else f"no: the filter is {'unknown' if value is None else 'false'}"
                if not value and route.selector is not None:
                    verdict += f", as {first_few([_told(name, view.value(name)) for name in route.selector.names])}"
                stopped = route.config.name if value and route.stop else ""
            verdicts.append(RouteVerdict(route.config.name, verdict))
        return verdicts

    def _routes_of(self, address: bytes) -> tuple[Header, tuple[_ReadyRoute, ...], _Plain | None]:
        try:
            name = address.decode()
        except UnicodeDecodeError as error:
            raise RowError(f"an address of {counted(len(address), 'byte')} is not text: {error}") from None
        found = tuple(route for route in self._routes if matches(route.pattern, name))
        plain = found[0].plain if found and (len(found) == 1 or found[0].stop) else None
        return self._of_address.keep(address, ((DESTINATION_HEADER, address), found, plain), len(address))


def _told(name: str, value: Value | None) -> str:
    """A header that a filter looks at, with its value and its type."""
    if value is None:
        return f"{name} is not set"
    kind = {bool: "condition", str: "text", bytes: "bytes"}.get(type(value), "number")
    return f"{name} is the {kind} {shortened(str(value), _TOLD_CHARACTERS_MAX)}"


class _ReadyRoute:
    """A route with its parsed pattern, selector and targets."""

    def __init__(self, config: RouteConfig, context: Context) -> None:
        self.config = config
        self.pattern = parse_pattern(config.address)
        self.selector = Selector(config.filter) if config.filter.strip() else None
        self.stop = config.stop
        self.targets = [Target(target, config, context) for target in config.targets]

    def selects(self, sending: MessageSending) -> bool:
        """Whether the selector takes the message. Raises RowError, and UnfitError if the selector fails."""
        assert self.selector is not None
        view = sending.view
        try:
            return self.selector.selects(view.value)
        except RowError:
            raise
        except Exception as error:
            raise unexpected(error) from error

    @property
    def plain(self) -> _Plain | None:
        """The function that makes the record of most messages, if the only target is plain and the route takes every
        message; else None."""
        only = self.targets[0] if len(self.targets) == 1 and self.selector is None else None
        return only.plain if only is not None and only.is_plain else None


def _up_to(name: str, routes: Sequence[_ReadyRoute], journal: str) -> list[_ReadyRoute]:
    """A route, and the routes before it that have `stop`. Those lose their targets, because they only keep messages
    from it."""
    for at, route in enumerate(routes):
        if route.config.name == name:
            before = [each for each in routes[:at] if each.stop]
            for each in before:
                each.targets = []
            return [*before, route]
    there = ", ".join(route.config.name for route in routes) or "none"
    raise ConfigError(f"{called(journal)} has no route {name}: its routes are {there}")
