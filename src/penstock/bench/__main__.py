"""`python -m penstock.bench NAME [--quick] [--json FILE] [--plots DIR]`."""

from __future__ import annotations

import argparse
import sys

from penstock.bench import NAMES, run
from penstock.errors import PenstockError


def main(arguments: list[str] | None = None) -> int:
    listing = "\n".join(f"  {name:<10} {text}" for name, text in NAMES.items())
    parser = argparse.ArgumentParser(
        prog="python -m penstock.bench",
        description=f"Benchmarks:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="which one; none: list them")
    parser.add_argument("--quick", action="store_true", help="less data: two to six minutes")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    parser.add_argument("--plots", metavar="DIR", help="write plots and their data there, too")
    given = parser.parse_args(arguments)
    if given.name is None:
        print(listing)
        return 0
    try:
        return run(given.name, given.quick, given.json, given.plots)
    except PenstockError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
