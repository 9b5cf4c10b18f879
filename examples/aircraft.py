"""Aircraft over the Alps: who enters and leaves which flight information region, live, and a map.

An hour of real tracks comes in, ten minutes at a time, while the queries run; the map is drawn anew
each time. Run from the directory above:  python examples/aircraft.py --map aircraft.png
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock import Engine

DATA = Path(__file__).parent / "data" / "aircraft"
VERBS = {"ENTER": "enters", "LEAVE": "leaves", "DWELL": "is still over"}

SETUP = """
    CREATE STREAM Fixes (
      aircraft STRING, callsign STRING, lon DOUBLE, lat DOUBLE, feet BIGINT, ts TIMESTAMP
    ) WITH (source = 'file', path = '{inbox}', format = 'parquet', event_time = 'ts');
    CREATE REGIONS Regions FROM '{regions}';
"""
CROSSINGS = """
    SELECT callsign, event, time, name
    FROM EVENTS OF Fixes BY callsign AT ST_Point(lon, lat) IN Regions [DWELL 10 MINUTES]
"""
BUSY = """
    SELECT name, count(DISTINCT callsign) AS aircraft, max(feet) AS highest
    FROM Fixes [RANGE 20 MINUTES], Regions
    WHERE ST_Within(ST_Point(lon, lat), geom) GROUP BY name
"""
OVER_ZURICH = """
    SELECT callsign FROM Fixes
    WHERE ST_DWithin(ST_Point(lon, lat), ST_Point(8.55, 47.46), 10000, true)
"""

# at a border one region is left and another entered, at the same place
MARKERS: dict[str, dict[str, Any]] = {
    "LEAVE": {"marker": "o", "ls": "", "color": "#d55e00", "markersize": 8, "fillstyle": "none"},
    "ENTER": {"marker": ".", "ls": "", "color": "#009e73", "markersize": 7},
    "DWELL": {"marker": "s", "ls": "", "color": "#0072b2", "markersize": 5, "fillstyle": "none"},
}

Event = dict[str, Any]


def pieces(fixes: pa.Table, step: dt.timedelta) -> Iterator[pa.Table]:
    """The tracks, a few minutes at a time."""
    start, last = (pc.min_max(fixes["ts"])[end].as_py() for end in ("min", "max"))
    while start <= last:
        inside = (pc.field("ts") >= start) & (pc.field("ts") < start + step)
        yield fixes.filter(inside)
        start += step


def put(piece: pa.Table, inbox: Path, number: int) -> None:
    """A file that is there whole or not at all."""
    half = inbox / f".{number}.parquet"
    pq.write_table(piece, half)
    os.replace(half, inbox / f"{number:03d}.parquet")


def watch(fixes: pa.Table, step: dt.timedelta, map_: Path | None) -> list[Event]:
    """All events, in the order in which they were told."""
    events: list[Event] = []
    came = 0

    def tell(rows: pa.Table) -> None:
        for row in rows.to_pylist():
            events.append(row)
            print(f"{row['time']:%H:%M:%S}  {row['callsign']} {VERBS[row['event']]} {row['name']}")

    with tempfile.TemporaryDirectory() as inbox, Engine() as engine:
        engine.execute(SETUP.format(inbox=inbox, regions=DATA / "regions.geojson"))
        with engine.together():
            engine.register(CROSSINGS, "crossings", sink=tell)
            busy = engine.register(BUSY, "busy")
            over_zurich = engine.register(OVER_ZURICH, "over_zurich")
        for number, piece in enumerate(pieces(fixes, step)):
            put(piece, Path(inbox), number)
            engine.await_idle()
            came += len(piece)
            if map_ is not None:
                draw(fixes, came, events, map_)
        engine.finish()
        for row in busy.results().to_pylist():
            where = f"until {row['window_end']:%H:%M}  {row['name']}"
            print(f"{where}: {row['aircraft']} aircraft, up to {row['highest']} feet")
        seen = set(over_zurich.results()["callsign"].to_pylist())
        print(f"within 10 km of Zurich airport: {', '.join(sorted(seen))}")
    return events


def draw(fixes: pa.Table, came: int, events: list[Event], path: Path) -> None:
    """Regions, the tracks that have come so far, and where events happened."""
    import shapely
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.4), layout="constrained")
    axes = figure.subplots()
    xs, ys = (fixes[name].to_numpy() for name in ("lon", "lat"))
    shown = shapely.box(xs.min() - 0.1, ys.min() - 0.1, xs.max() + 0.1, ys.max() + 0.1)
    features = json.loads((DATA / "regions.geojson").read_text())["features"]
    for number, feature in enumerate(features):
        area = shapely.from_geojson(json.dumps(feature["geometry"])).intersection(shown)
        for part in shapely.get_parts(area):
            axes.fill(*part.exterior.xy, color=f"C{number}", alpha=0.18)
        axes.annotate(feature["properties"]["name"], area.representative_point().coords[0])
    rows = fixes.sort_by("ts").slice(0, came).to_pylist()
    places = {(row["callsign"], row["ts"]): (row["lon"], row["lat"]) for row in rows}
    for callsign in {row["callsign"] for row in rows}:
        track = [(row["lon"], row["lat"]) for row in rows if row["callsign"] == callsign]
        axes.plot(*zip(*track, strict=True), color="#555555", linewidth=0.5)
    for kind, look in MARKERS.items():
        at = [places[e["callsign"], e["time"]] for e in events if e["event"] == kind]
        axes.plot([x for x, _ in at], [y for _, y in at], label=f"{kind} {len(at)}", **look)
    axes.set_title(f"{len({r['callsign'] for r in rows})} aircraft until {rows[-1]['ts']:%H:%M:%S}")
    left, bottom, right, top = shown.bounds
    axes.set(xlim=(left, right), ylim=(bottom, top), xlabel="longitude", ylabel="latitude")
    axes.set_aspect(1.45)  # at 46.5 degrees north a degree of latitude is so much longer
    axes.legend(loc="lower right")
    half = path.with_name(f".{path.name}")
    figure.savefig(half, dpi=100, format=path.suffix.lstrip(".") or "png")
    os.replace(half, path)  # whoever looks at it sees a whole picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--map", type=Path, help="write a picture there (needs matplotlib)")
    parser.add_argument("--minutes", type=int, default=10, help="that come in at a time")
    given = parser.parse_args()
    fixes = pq.read_table(DATA / "tracks.parquet")
    events = watch(fixes, dt.timedelta(minutes=given.minutes), given.map)
    counts = Counter(event["event"] for event in events)
    print(", ".join(f"{counts[kind]} × {kind}" for kind in VERBS))
    if given.map is not None:
        draw(fixes, len(fixes), events, given.map)


if __name__ == "__main__":
    main()
