"""The Python API: a stream over files, a named query, a function that gets results, an explanation.

Run from the directory above:  python examples/rooms.py
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from penstock import Engine

DATA = Path(__file__).parent / "data"


def warn(rows: pa.Table) -> None:
    """Called with each Arrow table of new results."""
    for row in rows.to_pylist():
        print(f"hot: sensor {row['id']} in the {row['room']}, {row['temp']} degrees")


def main() -> None:
    # bounded: read what the files hold, exactly, then stop. Without it the engine runs on, and
    # queries can be registered and dropped at any time.
    with Engine(bounded=True) as engine:
        engine.execute(f"""
            CREATE STREAM Sensors (
              id INT, room STRING, temp DOUBLE, ts TIMESTAMP, arrived TIMESTAMP
            ) WITH (source = 'file', path = '{DATA / "sensors"}', format = 'json',
              event_time = 'ts', arrival_time = 'arrived');
        """)
        engine.register("SELECT id, room, temp FROM Sensors WHERE temp > 37", "hot", sink=warn)
        climate = engine.register(
            """
            SELECT room, count(*) AS readings, round(avg(temp), 1) AS mean
            FROM Sensors [RANGE 15 MINUTES]
            GROUP BY room
            """,
            "climate",
        )
        print(climate.explain())
        engine.finish()
        for row in climate.results().to_pylist():
            start = row["window_start"].strftime("%H:%M")
            print(f"{start}  {row['room']:<8} {row['readings']:>4} readings, {row['mean']} degrees")
        print(climate.status)


if __name__ == "__main__":
    main()
