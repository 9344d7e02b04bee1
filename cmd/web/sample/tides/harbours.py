"""Reads the harbours that ship with the package."""

import json
from importlib import resources

from .model import Constituent, Harbour


class UnknownHarbour(KeyError):
    pass


def load(name):
    # FIXME: the file is read again for each call.
    table = json.loads(resources.files(__package__).joinpath("harbours.json").read_text())
    try:
        row = table[name]
    except KeyError:
        raise UnknownHarbour(f"{name}: known are {', '.join(sorted(table))}") from None
    return Harbour(name, row["mean"], tuple(Constituent(**c) for c in row["constituents"]))
