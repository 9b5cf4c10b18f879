"""Write examples/data/aircraft anew: an hour over the Alps, out of the package `traffic`.

    pip install --no-deps traffic==2.13
    python scripts/aircraft.py

Of the package's sample `switzerland` (ADS-B, a fix every ten seconds) it takes every third fix from
09:00 to 10:00, and of its flight information regions (EUROCONTROL) those that these aircraft cross,
with boundaries simplified to a hundredth of a degree.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely

TARGET = Path(__file__).parent.parent / "examples" / "data" / "aircraft"
FIRST_MS, LAST_MS, STEP_MS = 1_533_114_000_000, 1_533_117_600_000, 30_000  # 2018-08-01, 09 to 10
TOLERANCE = 0.01


def package_data() -> Path:
    found = importlib.util.find_spec("traffic")
    if found is None or found.origin is None:
        raise SystemExit(
            "the package traffic is not installed: pip install --no-deps traffic==2.13"
        )
    return Path(found.origin).parent / "data"


def tracks(data: Path) -> pa.Table:
    """Fixes in the order of their times."""
    with gzip.open(data / "samples" / "collections" / "switzerland.json.gz") as file:
        records = json.load(file)
    fixes = [
        {
            "aircraft": record["icao24"],
            "callsign": record["callsign"],
            "lon": round(record["longitude"], 4),
            "lat": round(record["latitude"], 4),
            "feet": round(record["altitude"]),
            "ts": record["timestamp"],
        }
        for record in records
        if FIRST_MS <= record["timestamp"] < LAST_MS and record["timestamp"] % STEP_MS == 0
    ]
    table = pa.Table.from_pylist(fixes).sort_by([("ts", "ascending"), ("aircraft", "ascending")])
    times = pc.cast(table["ts"], pa.timestamp("ms", "UTC"))
    return table.set_column(table.schema.get_field_index("ts"), "ts", times)


def regions(data: Path, fixes: pa.Table) -> dict[str, object]:
    everything = json.loads((data / "eurocontrol" / "eurofirs.json").read_text())
    points = shapely.multipoints(shapely.points(fixes["lon"].to_numpy(), fixes["lat"].to_numpy()))
    found = []
    for feature in everything["features"]:
        area = shapely.from_geojson(json.dumps(feature["geometry"]))
        if shapely.intersects(area, points):
            simple = shapely.set_precision(shapely.simplify(area, TOLERANCE), 0.001)
            names = feature["properties"]
            properties = {"fir": names["IDENT"], "name": names["NAME"].removesuffix(" FIR").title()}
            geometry = json.loads(shapely.to_geojson(simple))
            found.append({"type": "Feature", "properties": properties, "geometry": geometry})
    return {"type": "FeatureCollection", "features": found}


def main() -> None:
    data = package_data()
    TARGET.mkdir(parents=True, exist_ok=True)
    fixes = tracks(data)
    pq.write_table(fixes, TARGET / "tracks.parquet", compression="zstd")
    text = json.dumps(regions(data, fixes), separators=(",", ":"))
    (TARGET / "regions.geojson").write_text(text + "\n")


if __name__ == "__main__":
    main()
