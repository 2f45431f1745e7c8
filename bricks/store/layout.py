"""The version of the cache's layout, and the words that its rows use.

Separate from the tables (:mod:`bricks.store.schema`), so that reading needs no library for them.
"""

# History. Every change of a table raises the version and adds a step to schema.py.
#   1  first layout
#   2  rounds have the conditions they met: reference_s, waited_share
#   3  rounds have the reference's latency after them too: reference_end_s; plans are made anew,
#      with the weights of each place
#   4  bricks, plans and rounds have a checksum, measurements the number of their rounds; claims
#      have the end of their lease, and the start of their owner, by a clock that nobody sets;
#      plans are made anew, with what was assumed
#   5  systems have the name that somebody gave them, and their price
#   6  networks, which targets of collectives name in their runtime
#   7  rounds have the state of the device that ran kernels: device_state
#   8  rounds have the conditions of the host, in place of reference_s and reference_end_s; a target
#      has all the conditions that it was watched in
SCHEMA_VERSION = 8

# Facts about the cache itself; "schema_version" is one of them. The table's name is what tells a
# cache from any other database, in all versions: never rename it.
INFO_TABLE = "bricks_cache_info"

# States of a measurement: OPEN rows are claimed, or wait for a process to continue them.
OPEN, DONE, FAILED = "open", "done", "failed"

# The owner of a row without a claim.
NOBODY = ""

# Seconds after which a claim that was not renewed is free.
LEASE_S = 600.0
