from bricks.samples.measurement import Sampling, combined


def test_samplings_add_up() -> None:
    first = Sampling(foreign_cores=0.5, rounds=3, disturbed_rounds=1, throttled_rounds=2,
                     remeasured=frozenset("ab"), separate=frozenset("a"))  # fmt: skip
    second = Sampling(rounds=4, throttled_rounds=1, remeasured=frozenset("bc"), eviction_short=True,
                      separate=frozenset("b"))  # fmt: skip
    both = combined([first, second])
    assert both == Sampling(
        foreign_cores=0.5,
        rounds=7,
        disturbed_rounds=1,
        throttled_rounds=3,
        remeasured=frozenset("abc"),
        eviction_short=True,
        separate=frozenset("ab"),
    )
    assert both.remeasured_bricks == 3
    assert combined([]) == Sampling()
    assert Sampling(**both.sampling_fields) == both


def test_the_highest_load_of_other_processes_is_kept() -> None:
    loads = (0.25, 0.75, None, 0.5)
    assert combined(Sampling(foreign_cores=load) for load in loads).foreign_cores == 0.75
