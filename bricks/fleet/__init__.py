"""Hosts that measure together: every distinct system measures each brick once.

Hosts join a Dask scheduler, which the user starts, with ``bricks worker``. A coordinator on one
host distributes the bricks of its models among them, and merges their measurements into its cache.
Data that arrives is checked as a file from anybody would be; but Dask pickles functions, so any
program that can connect to the scheduler can run code on every host. A fleet is for Dask's TLS, or
for networks whose users are trusted: addresses without TLS off loopback need an explicit word.

    work.py         the batches of each target that are still to be measured, and the cache that
                    results are merged into
    coordinator.py  hosts as the coordinator sees them, and which of them measures which batch
    host.py         the functions that the coordinator calls on a host
    ranks.py        ranks on hosts, and the network between them
    report.py       what each host and each target came to
    cluster.py      hosts behind a Dask scheduler, and ``bricks worker``
"""
