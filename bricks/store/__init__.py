"""The deduplicating cache: what was decomposed and measured, once per target, kept as raw samples.

One database holds systems, targets, plans, bricks, measurements and failures. It is SQLite in a
folder by default and any database SQLAlchemy speaks to by URL. Several processes, on several hosts,
may work on one cache: a measurement is claimed before it is made, so that it is made once.

    schema.py        the tables and the history of their version
    migrations.py    how an older cache becomes a current one
    engine.py        connections and transactions; where database errors become StoreError
    rows.py          rows to frozen data and back
    owners.py        the owner of a claim, and whether its process still lives
    measurements.py  claims, rounds, results
    integrity.py     whether the database file is whole
    audit.py         what ``verify`` checks
    stats.py         counts of what a cache holds
    export.py        rows to records that travel
    records.py       records to frozen data
    merge.py         records of another cache to rows
    results_file.py  files of records
    store.py         ``Store``, the class that other packages use
    reading.py       ``Reading``, what can be asked of any source of measurements
    published.py     measurements that ship with the package
    union.py         several sources as one

The package must not know how anything is decomposed, measured or estimated.
"""

from bricks.store.merge import Merged
from bricks.store.owners import Claim, Owner, alive
from bricks.store.published import Published
from bricks.store.reading import Reading
from bricks.store.schema import SCHEMA_VERSION
from bricks.store.stats import CacheStats
from bricks.store.store import Store
from bricks.store.union import Elsewhere, Union

__all__ = [
    "SCHEMA_VERSION",
    "CacheStats",
    "Claim",
    "Elsewhere",
    "Merged",
    "Owner",
    "Published",
    "Reading",
    "Store",
    "Union",
    "alive",
]
