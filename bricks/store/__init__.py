"""The deduplicating cache: what was decomposed and measured, once per target, kept as raw samples.

One database holds systems, targets, plans, bricks, measurements and failures. It is SQLite in a
folder by default and any database SQLAlchemy speaks to by URL. Several processes, on several hosts,
may work on one cache: a measurement is claimed before it is made, so that it is made once.

    store.py             ``Store``, the class that other packages use; its content as a whole
    systems.py           its systems, networks and targets
    plans.py             its plans and bricks
    measurements.py      its results
    claims.py            what processes hold of it
    database.py          the connection that they share
    engine.py            transactions; where database errors become StoreError
    layout.py            the history of their version, and the words that rows use
    schema.py            the tables; how an older cache becomes a current one
    rows.py              rows to frozen data and back
    measurement_rows.py  rows of measurements and rounds: selected, locked, added to
    owners.py            the owner of a claim, and whether its process still lives
    database_file.py     where the database file lies, and whether it is whole
    audit.py             what ``verify`` checks
    export.py            rows to records that travel; counts of rows
    records.py           records to frozen data
    merge.py             records of another cache to rows
    results_file.py      files of records
    reading.py           ``Reading``, what can be asked of any source of measurements;
                         ``Union``: several sources as one
    published.py         measurements that ship with the package
    published_index.py   which files they are in, and where in a file
    published_file.py    one of these files

Each name is loaded when it is first used: an answer from the cache needs few of these modules. The
package must not know how anything is decomposed, measured or estimated.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bricks.store.export import CacheStats
    from bricks.store.layout import SCHEMA_VERSION
    from bricks.store.merge import Merged
    from bricks.store.owners import Claim, Owner, alive
    from bricks.store.published import Published
    from bricks.store.reading import Reading, Union
    from bricks.store.store import Store

_MODULES = {
    "SCHEMA_VERSION": "layout", "CacheStats": "export", "Claim": "owners", "Merged": "merge",
    "Owner": "owners", "Published": "published", "Reading": "reading", "Store": "store",
    "Union": "reading", "alive": "owners",
}  # fmt: skip

__all__ = [
    "SCHEMA_VERSION",
    "CacheStats",
    "Claim",
    "Merged",
    "Owner",
    "Published",
    "Reading",
    "Store",
    "Union",
    "alive",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
