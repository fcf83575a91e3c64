"""The routes and sources of a journal, as its configuration gives them. docs/ROUTING.md is the reference."""

from __future__ import annotations

from pydantic import Field, model_validator

from journal.routing.checks import faults_of
from journal.routing.parts import OptionalTopic, RouteConfig, RoutingPart, SourceConfig


class RoutingConfig(RoutingPart):
    """All routes and sources of a journal, in order."""

    routes: tuple[RouteConfig, ...] = ()
    sources: tuple[SourceConfig, ...] = ()
    hops_max: int = Field(default=8, ge=1, le=1000)
    """How many times a message may be sent to Kafka, counted over all journals that it passed."""
    dead_letter_topic: OptionalTopic = ""
    """The topic of dead letters of all routes and sources that name none."""
    record_bytes_max: int = Field(default=1_000_000, ge=1000)
    """The largest record for a topic whose max.message.bytes is not known."""

    @model_validator(mode="after")
    def _fits_together(self) -> RoutingConfig:
        if faults := faults_of(self):
            raise ValueError("; ".join(faults))
        return self
