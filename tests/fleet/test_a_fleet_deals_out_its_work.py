"""How work is dealt out, with hosts that are functions in this process."""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import conv_net, mlp, save
from refusals import refused

from bricks.errors import BackendError, FleetError, ModelError
from bricks.fleet import coordinator
from bricks.fleet import host as on_host
from bricks.fleet.coordinator import Coordinator, HostStatus
from bricks.fleet.host import BatchResult
from bricks.graph.model import Model
from bricks.measure.conditions import Conditions, StopRule
from bricks.reading.read import read_model
from bricks.session import workspace as workspace_module
from bricks.session.options import Options
from bricks.session.plans import Plans
from bricks.store import Store
from bricks.system import fingerprint

QUICK = Conditions(rule=StopRule(min_rounds=2, max_rounds=2), exclusive=False)
FAKE = Options(runtime="fake", conditions=QUICK)

# What a host does instead of what it is asked: given the function, and what it would return.
Behaviour = Callable[[Callable[..., Any], Callable[[], Any]], Any]


class Answer:
    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return self._ask()

    def cancel(self) -> None:
        pass


class Hosts:
    """Hosts that do what they are asked at once, each in its own way."""

    def __init__(self, **behaviours: Behaviour) -> None:
        self._behaviours = behaviours
        self._signs = 1.0
        self.asked: list[tuple[str, str]] = []
        self.silent: set[str] = set()

    def hosts(self) -> Mapping[str, HostStatus]:
        self._signs += 1.0
        return {
            name: HostStatus(name, 1.0 if name in self.silent else self._signs)
            for name in self._behaviours
        }

    def call(self, address: str, function: Callable[..., Any], *arguments: Any) -> Answer:
        # As over a network: what goes there and comes back is a copy.
        request, *rest = pickle.loads(pickle.dumps(arguments)) if arguments else [""]
        self.asked.append((address, function.__name__))

        def usual() -> Any:
            return function(*([request + address, *rest] if arguments else []))

        return Answer(
            lambda: pickle.loads(pickle.dumps(self._behaviours[address](function, usual)))
        )

    def notify(self, address: str, function: Callable[..., Any], *arguments: Any) -> None:
        self.call(address, function, *arguments).result()


def good(function: Callable[..., Any], usual: Callable[[], Any]) -> Any:
    return usual()


def elsewhere(function: Callable[..., Any], usual: Callable[[], Any]) -> Any:
    """Does as it is asked, on another system."""
    here = fingerprint()
    there = replace(here, name="elsewhere", identity={**here.identity, "cpu": "another"})
    with pytest.MonkeyPatch.context() as patch:
        for module in (on_host, workspace_module):
            patch.setattr(module, "fingerprint", lambda: there)
        return usual()


def failing(on: Callable[..., Any], error: Exception, times: int = 99) -> Behaviour:
    """Raises the first ``times`` that it is asked for a function."""
    left = [times]

    def behave(function: Callable[..., Any], usual: Callable[[], Any]) -> Any:
        if function is on and left[0] > 0:
            left[0] -= 1
            raise error
        return usual()

    return behave


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Model]:
    folder = tmp_path_factory.mktemp("models")
    files = [
        save(conv_net(blocks=1), folder, "conv.onnx"),
        save(mlp(widths=(16, 32, 64, 8)), folder, "mlp.onnx"),
    ]
    return [read_model(file, name=file.stem) for file in files]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "cache") as store:
        yield store


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts here have answered before they are looked at again."""
    sleep = time.sleep
    monkeypatch.setattr(coordinator.time, "sleep", lambda seconds: sleep(min(seconds, 0.002)))


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A request that is over leaves no models and no cache on a host."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield
    assert not list(temporary.glob("bricks-fleet-*"))


def fleet(hosts: Hosts, store: Store, models: list[Model], options: Options = FAKE) -> Coordinator:
    return Coordinator(hosts, store, models, options, patience_s=0.5)


def test_hosts_that_are_alike_share_the_work_and_others_do_all_of_it(
    store: Store, models: list[Model]
) -> None:
    done = fleet(Hosts(a=good, b=good, c=elsewhere), store, models).run()
    assert [host.left for host in done.hosts] == [None] * 3
    assert len(done.targets) == len(store.systems.all()) == 2
    for target in done.targets:
        assert (target.unfinished, target.errors, target.given_up) == (0, {}, ())
        assert target.new_bricks == target.bricks > 0
    new = {host.name: host.new_bricks for host in done.hosts}
    assert new["a"] and new["b"]
    assert new["a"] + new["b"] == new["c"] == done.targets[0].bricks
    assert store.contents.verify() == []


def test_what_the_store_has_is_not_asked_for(store: Store, models: list[Model]) -> None:
    fleet(Hosts(a=good), store, models[:1]).run()
    hosts = Hosts(a=good)
    done = fleet(hosts, store, models[:1]).run()
    assert done.targets[0].new_bricks == 0
    assert ("a", "measure") not in hosts.asked


def test_another_version_is_left_out(store: Store, models: list[Model]) -> None:
    def old(function: Callable[..., Any], usual: Callable[[], Any]) -> Any:
        return {"package": "0.0.1"} if function is on_host.greet else usual()

    done = fleet(Hosts(old=old, new=good), store, models).run()
    left = {host.name: host.left for host in done.hosts}
    assert left["new"] is None
    assert left["old"] is not None and left["old"].startswith("runs bricks 0.0.1, and not")
    with refused(FleetError, "old", "0.0.1"):
        fleet(Hosts(old=old), store, models).run()


def test_a_host_without_the_runtime_is_left_out(store: Store, models: list[Model]) -> None:
    missing = failing(on_host.prepare, BackendError("runtime fake is not installed"))
    done = fleet(Hosts(missing=missing, a=good), store, models).run()
    assert done.targets[0].unfinished == 0
    (left,) = [host.left for host in done.hosts if host.left]
    assert left == "cannot measure: runtime fake is not installed"


def test_a_portion_that_fails_is_tried_again(store: Store, models: list[Model]) -> None:
    unlucky = failing(on_host.measure, RuntimeError("no luck"), times=2)
    done = fleet(Hosts(unlucky=unlucky), store, models).run()
    assert (done.targets[0].unfinished, done.targets[0].given_up) == (0, ())


def test_a_portion_that_fails_three_times_is_given_up(store: Store, models: list[Model]) -> None:
    unlucky = failing(on_host.measure, RuntimeError("no luck"), times=3)
    (target,) = fleet(Hosts(unlucky=unlucky), store, models).run().targets
    assert len(target.given_up) == 1
    assert 0 < target.unfinished < target.bricks


def test_a_portion_that_always_fails_is_given_up_by_name(store: Store, models: list[Model]) -> None:
    broken = failing(on_host.measure, RuntimeError("broken\nbeyond repair"))
    done = fleet(Hosts(broken=broken), store, models).run()
    (target,) = done.targets
    assert target.unfinished == target.bricks
    assert all("were given up after 3 tries: broken: broken beyond" in x for x in target.given_up)


def test_a_host_that_was_started_again_is_told_anew(store: Store, models: list[Model]) -> None:
    forgetful = failing(on_host.measure, FleetError("the host has forgotten the models"), times=1)
    hosts = Hosts(forgetful=forgetful)
    assert fleet(hosts, store, models).run().targets[0].unfinished == 0
    assert [function for _, function in hosts.asked].count("prepare") == 2


def test_a_host_that_cannot_be_told_anew_is_left_out_for_good(
    store: Store, models: list[Model]
) -> None:
    """However often it sends another heartbeat."""
    asked = [0]

    def dying(function: Callable[..., Any], usual: Callable[[], Any]) -> Any:
        if function is on_host.measure:
            raise FleetError("the host has forgotten the models")
        if function is on_host.prepare:
            asked[0] += 1
            if asked[0] > 1:
                raise OSError("no space left on device")
        return usual()

    done = fleet(Hosts(dying=dying), store, models).run()
    assert [host.left for host in done.hosts] == ["cannot measure: no space left on device"]
    assert done.targets[0].unfinished == done.targets[0].bricks


def test_a_model_that_cannot_be_decomposed_there_does_not_stop_the_others(
    store: Store, models: list[Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    decompose = Plans.decompose

    def picky(plans: Plans, model: Model) -> Any:
        if model.name == "mlp":
            raise ModelError("mlp: no")
        return decompose(plans, model)

    monkeypatch.setattr(Plans, "decompose", picky)
    (target,) = fleet(Hosts(a=good), store, models).run().targets
    assert target.errors == {"mlp": "mlp: no"}
    assert target.bricks > 0 and target.unfinished == 0


def test_settings_that_change_meanwhile_are_reported(store: Store, models: list[Model]) -> None:
    def tuned(function: Callable[..., Any], usual: Callable[[], Any]) -> Any:
        result = usual()
        if isinstance(result, BatchResult):
            recorded = {**result.system.recorded, "governor": "powersave"}
            result = replace(result, system=replace(result.system, recorded=recorded))
        return result

    done = fleet(Hosts(tuned=tuned), store, models).run()
    assert done.targets[0].unfinished == 0
    (host,) = done.hosts
    (line,) = host.changed
    assert line.startswith("governor from ") and line.endswith(" to powersave")


@pytest.mark.parametrize("damage", [lambda b: b[:-20], lambda b: b.replace(b"[[[0.", b"[[[9.", 1)])
def test_results_that_are_not_whole_are_not_taken(
    store: Store, models: list[Model], damage: Callable[[bytes], bytes]
) -> None:
    def liar(function: Callable[..., Any], usual: Callable[[], Any]) -> Any:
        result = usual()
        if isinstance(result, BatchResult):
            return replace(result, results=damage(result.results))
        return result

    done = fleet(Hosts(liar=liar), store, models).run()
    (target,) = done.targets
    assert target.unfinished == target.bricks
    assert "given up" in target.given_up[0]


def test_a_host_that_gives_no_sign_of_life_loses_its_work(
    store: Store, models: list[Model]
) -> None:
    hosts = Hosts(hung=good, heir=good)
    never = Answer(lambda: None)
    never.done = lambda: False  # type: ignore[method-assign]
    call = hosts.call

    def hanging(address: str, function: Callable[..., Any], *arguments: Any) -> Answer:
        if address == "hung" and function is on_host.measure:
            hosts.silent.add("hung")
            return never
        return call(address, function, *arguments)

    hosts.call = hanging  # type: ignore[method-assign]
    done = fleet(hosts, store, models).run()
    on_host.finish_all()
    assert done.targets[0].unfinished == 0
    assert {host.name: host.left for host in done.hosts} == {
        "hung": "has given no sign of life for 0 s",
        "heir": None,
    }
