"""Command line: print a day's highs and lows for one harbour."""

import argparse
import datetime

from .harbours import load
from .table import extremes


def main(argv=None):
    parser = argparse.ArgumentParser(prog="tides")
    parser.add_argument("--harbour", required=True)
    parser.add_argument("--date", default=None, help="YYYY-MM-DD, today if left out")
    args = parser.parse_args(argv)
    day = datetime.date.fromisoformat(args.date) if args.date else datetime.date.today()
    harbour = load(args.harbour)
    for when, metres, kind in extremes(harbour, day):
        print(f"{when:%H:%M}  {kind:<4}  {metres:5.2f} m")


if __name__ == "__main__":
    main()
