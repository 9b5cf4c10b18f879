"""ENTER, LEAVE and DWELL: what happens between moving objects and fences.

Tuples say where an object was at a time: in these fences and in no others. Tuples of one object at
one time are one observation, in all the fences that any of them names; so neither their order nor a
tuple that comes twice matters. Between two observations of an object
- a fence that only the later one has is entered, at its time;
- a fence that only the earlier one has is left, at the time of the later, after the time since it
  was entered;
- a fence that both have is dwelt in once the time since entering reaches `dwell_us`: one event for
  each stay, at the first observation that late.
An object that is not heard of stays where it is.

Times below the punctuation are complete. Tuples at or above it wait in the state, so that events
are the same however the stream is cut into batches. A tuple below the punctuation of an earlier
batch is late: it is counted and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.columns import INT64_MIN, dictionary_codes
from penstock.kernels.jit import FLAGS, INT, INTS, Flags, Ints, kernel

LEAVE, ENTER, DWELL = range(3)  # in this order at one time
KINDS = pa.array(["LEAVE", "ENTER", "DWELL"])

_NEVER = -1


@dataclass(frozen=True, slots=True)
class FenceState:
    """What is known of objects between two batches.

    stays: object, fence, entered_us, dwelt: fences that objects are in. waiting: object, time_us,
    fences: tuples that are not complete yet. closed_us: the punctuation so far.
    """

    stays: pa.Table
    waiting: pa.Table
    closed_us: int = INT64_MIN


@dataclass(frozen=True, slots=True)
class FenceEvents:
    """events: object, fence, kind, time_us, duration_us since entering; ordered by time."""

    events: pa.Table
    state: FenceState
    late: int


def no_stays(object_type: pa.DataType) -> FenceState:
    """The state before the first tuple."""
    stays = {"object": object_type, "fence": pa.int64(), "entered_us": pa.int64()}
    return FenceState(
        pa.schema([*stays.items(), ("dwelt", pa.bool_())]).empty_table(),
        tuples_schema(object_type).empty_table(),
    )


def tuples_schema(object_type: pa.DataType) -> pa.Schema:
    fences = pa.list_(pa.int64())
    return pa.schema([("object", object_type), ("time_us", pa.int64()), ("fences", fences)])


def forget_fences(state: FenceState, dropped: Collection[int]) -> FenceState:
    """The state without fences that exist no more; nobody leaves them."""
    gone = pa.array(dropped, pa.int64())
    stays = state.stays.filter(pc.invert(pc.is_in(state.stays["fence"], gone)))
    return FenceState(stays, state.waiting, state.closed_us)


def follow_objects(
    state: FenceState, tuples: pa.Table, closed_us: int, dwell_us: int | None = None
) -> FenceEvents:
    """The events below a punctuation, which never falls, from the state and the next tuples.

    tuples: as `tuples_schema` has it, in any order, every object known.
    """
    in_time = pc.greater_equal(tuples["time_us"], state.closed_us)
    known = pa.concat_tables([state.waiting, tuples.filter(in_time)])
    complete = pc.less(known["time_us"], closed_us)
    taken, waiting = known.filter(complete), known.filter(pc.invert(complete))
    objects = pa.chunked_array(
        [*state.stays["object"].chunks, *taken["object"].chunks], state.stays["object"].type
    ).combine_chunks()
    codes, names = dictionary_codes(objects)
    stays = _sorted_stays(codes[: state.stays.num_rows], state.stays)
    observed = _observations(codes[state.stays.num_rows :], taken)
    unlimited = _NEVER if dwell_us is None else dwell_us
    events, left = _follow(*observed, *stays, unlimited)
    late = tuples.num_rows - pc.sum(in_time, min_count=0).as_py()
    return FenceEvents(
        _events_table(names, events),
        FenceState(_stays_table(names, left), waiting.combine_chunks(), closed_us),
        late,
    )


def _sorted_stays(objects: Ints, stays: pa.Table) -> tuple[Ints, Ints, Ints, Flags]:
    """Objects, fences, entered, dwelt; by object, then fence."""
    fences, entered = stays["fence"].to_numpy(), stays["entered_us"].to_numpy()
    order = np.lexsort((fences, objects))
    return objects[order], fences[order], entered[order], stays["dwelt"].to_numpy()[order]


def _observations(objects: Ints, tuples: pa.Table) -> tuple[Ints, Ints, Ints, Ints]:
    """Objects and times, each pair once and in order; offsets into fences, each once, in order."""
    lists = tuples["fences"].combine_chunks()
    times = tuples["time_us"].to_numpy()
    order = np.lexsort((times, objects))
    begins = np.ones(order.size, np.bool_)
    begins[1:] = np.diff(objects[order]) != 0
    begins[1:] |= np.diff(times[order]) != 0
    moments = np.empty(order.size, np.int64)
    moments[order] = np.cumsum(begins) - 1
    firsts = order[begins]
    rows = np.repeat(np.arange(order.size), pc.fill_null(pc.list_value_length(lists), 0))
    # one number for a moment and a fence: fences are counted through
    known, codes = np.unique(pc.list_flatten(lists).to_numpy(), return_inverse=True)
    pairs = np.unique(moments[rows] * max(1, known.size) + codes)
    owners, codes = np.divmod(pairs, max(1, known.size))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=firsts.size))])
    return objects[firsts], times[firsts], offsets, known[codes]


@kernel(INTS, INTS, INTS, INTS, INTS, INTS, INTS, FLAGS, INT)
def _follow(
    objects: Ints,
    times: Ints,
    offsets: Ints,
    fences: Ints,
    stay_objects: Ints,
    stay_fences: Ints,
    stay_entered: Ints,
    stay_dwelt: Flags,
    dwell_us: int,
) -> tuple[Ints, Ints]:
    """Rows of events: time, object, kind, fence, duration; and of stays.

    Both sides are in the order of fences, so that one walk over them compares two observations.
    """
    most = fences.size + stay_fences.size
    events = np.empty((3 * most, 5), np.int64)
    stays = np.empty((most, 4), np.int64)
    event_count, stay_count, done = 0, 0, 0
    now, after = np.empty((most, 3), np.int64), np.empty((most, 3), np.int64)
    row = 0
    while row < objects.size or done < stay_objects.size:
        known = done < stay_objects.size
        own = stay_objects[done] if known else objects[row]
        if known and row < objects.size:
            own = min(own, objects[row])
        count = 0
        while done < stay_objects.size and stay_objects[done] == own:
            now[count, 0], now[count, 1] = stay_fences[done], stay_entered[done]
            now[count, 2] = stay_dwelt[done]
            count += 1
            done += 1
        while row < objects.size and objects[row] == own:
            time = times[row]
            i, at, kept = 0, offsets[row], 0
            while i < count or at < offsets[row + 1]:
                kind = -1
                if at == offsets[row + 1] or (i < count and now[i, 0] < fences[at]):
                    fence, entered, kind = now[i, 0], now[i, 1], LEAVE
                    i += 1
                elif i == count or fences[at] < now[i, 0]:
                    fence, entered, kind = fences[at], time, ENTER
                    after[kept, 0], after[kept, 1], after[kept, 2] = fence, time, 0
                    kept += 1
                    at += 1
                else:
                    fence, entered, dwelt = now[i, 0], now[i, 1], now[i, 2]
                    if dwelt == 0 and dwell_us >= 0 and time - entered >= dwell_us:
                        kind, dwelt = DWELL, 1
                    after[kept, 0], after[kept, 1], after[kept, 2] = fence, entered, dwelt
                    kept += 1
                    i += 1
                    at += 1
                if kind >= 0:
                    events[event_count, 0], events[event_count, 1] = time, own
                    events[event_count, 2], events[event_count, 3] = kind, fence
                    events[event_count, 4] = time - entered
                    event_count += 1
            now, after = after, now
            count = kept
            row += 1
        for i in range(count):
            stays[stay_count, 0], stays[stay_count, 1] = own, now[i, 0]
            stays[stay_count, 2], stays[stay_count, 3] = now[i, 1], now[i, 2]
            stay_count += 1
    return events[:event_count].copy(), stays[:stay_count].copy()


def _events_table(names: pa.Array, events: Ints) -> pa.Table:
    events = events[np.lexsort(events.T[[3, 2, 1, 0]])]
    time_us, objects, kinds, fences, durations = events.T
    columns = {
        "object": names.take(pa.array(objects)),
        "fence": fences,
        "kind": KINDS.take(pa.array(kinds)),
        "time_us": time_us,
        "duration_us": durations,
    }
    return pa.table(columns)


def _stays_table(names: pa.Array, stays: Ints) -> pa.Table:
    objects, fences, entered, dwelt = stays.T
    columns = {
        "object": names.take(pa.array(objects)),
        "fence": fences,
        "entered_us": entered,
        "dwelt": dwelt.astype(np.bool_),
    }
    return pa.table(columns)
