"""From a SELECT to a query that can be started: bound, composed, and checked by Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.errors import QueryError
from penstock.language.ast import Select
from penstock.plan.bind import bind
from penstock.plan.bound import BoundQuery
from penstock.plan.catalog import Catalog, Stream
from penstock.plan.compose import compose
from penstock.plan.composed import Composed
from penstock.plan.input_order import with_ordered_inputs
from penstock.plan.result_columns import places_needed, shown_schema
from penstock.plan.specs import SlotSpec
from penstock.runtime.analyzer import Analyzer
from penstock.runtime.streams import is_endless
from penstock.schema import Schema


@dataclass(frozen=True, slots=True)
class Plan:
    """A query that is understood and checked, not yet running; streams: as the catalog had them."""

    select: Select
    streams: tuple[Stream, ...]
    bound: BoundQuery
    composed: Composed
    ring_outputs: Schema

    @property
    def outputs(self) -> Schema:
        """The query's own results: of those of its ring, in its own order and by its names."""
        return shown_schema(self.composed.columns, self.ring_outputs)

    def of_stream(self) -> Plan:
        """The plan as that of a derived stream: a DRATIO means something for selections, too."""
        if len(self.bound.inputs) > 1:
            return self
        composition = self.composed.composition
        composition = replace(composition, drop_ratio=self.bound.source.drop_ratio)
        bound = self.bound
        if composition.drop_ratio is not None and not bound.aggregated:
            bound = replace(bound, notes=())  # that it means nothing
        return replace(self, bound=bound, composed=replace(self.composed, composition=composition))

    def slot(self, number: int) -> SlotSpec:
        """What its ring has to know of it."""
        return _slot(number, self.composed)

    def notes(self, behind: bool) -> tuple[str, ...]:
        """What its user should know; behind: others have read of the stream before it."""
        if not behind or self.composed.window is None:
            return self.bound.notes
        note = "its first window is the first that begins after all tuples seen so far"
        return (*self.bound.notes, note)


def plan_query(select: Select, catalog: Catalog, analyzer: Analyzer, bounded: bool) -> Plan:
    """bind → compose, checked by Spark; bounded: refuse streams that never end."""
    bound = bind(select, catalog)
    spans = {ref.alias or ref.name: ref.span for ref in select.streams}
    for given in bound.inputs:
        if bounded and is_endless(given.stream):
            hint = "give its generator an end: rows = 100000"
            what = f"stream {given.stream.name} never ends"
            raise QueryError(what, hint, spans[given.alias])
    bound = with_ordered_inputs(bound)
    read = tuple(s for ref in select.streams if (s := catalog.get(ref.name)) is not None)
    composed = compose(bound, analyzer.type_of, analyzer.fold)
    inputs = [given.stream for given in bound.inputs]
    outputs = analyzer.output_schema(composed.composition, *inputs)
    return Plan(select, read, bound, composed, outputs)


def _slot(number: int, composed: Composed) -> SlotSpec:
    inputs = tuple(_slot(number, given) for given in composed.inputs)
    terms, window, composition = composed.terms, composed.window, composed.composition
    shows = places_needed(composition, composed.columns) if composition.any_columns else ()
    return SlotSpec(
        number,
        terms,
        window,
        derived=composed.derived,
        inputs=inputs,
        shows=shows,
        constants=composed.constants,
        roles=composed.roles,
    )
