"""Predicts the generation of text: a step for the prompt, and one for each further token.

Steps are models of a few lengths of the cache, whose bricks are measured all at once; with a check,
texts are really generated too. Cards that divide a decoder have a network between them. In batches
of several sizes, on several systems, all missing bricks are measured in one session. Must not know
how results are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from bricks.architectures.architecture import divides
from bricks.compose.device.collectives import step_collectives, with_collectives
from bricks.compose.memory.peak import PeakMemory, UnknownMemory
from bricks.compose.queueing.batching import batch_sizes
from bricks.compose.queueing.run import run_latency
from bricks.compose.queueing.simulation import rate
from bricks.errors import BricksError, UsageError
from bricks.measure.conditions import PRECISION, StopRule
from bricks.network.times import (
    PUBLISHED,
    STATED,
    LinkedCards,
    Network,
    StatedNetwork,
    linked_cards,
)
from bricks.session.predicting import basis
from bricks.session.targets import card_called
from bricks.session.whole_models import predict_memory
from bricks.studies.generation.check import GeneratedText
from bricks.studies.generation.load import load_of
from bricks.studies.generation.options import GenerationOptions, LlmOptions
from bricks.studies.generation.result import (
    DividedOver,
    GenerationFailure,
    GenerationMemory,
    GenerationResult,
    LlmResult,
)
from bricks.studies.generation.steps import (
    MEMORY_DRIFT,
    CardSteps,
    DecoderStep,
    Steps,
    StepTimes,
    card_steps,
    is_published,
    lengths_between,
    steps_of,
)
from bricks.studies.study import Needs, Study, ask, observation_of, target_asked
from bricks.units.interval import common_sum

if TYPE_CHECKING:
    from bricks.architectures.architecture import Architecture
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.studies.generation.options import CardOptions, Generation
    from bricks.system import System, Target

# A step takes so long that few samples of its bricks are enough.
_RULE = StopRule(precision=0.05, min_rounds=4, max_rounds=12, passes=1)

# Texts, tokens of each, and tokens that came before.
StepKey = tuple[int, int, int]

# In place of the names of systems.
ALL = "all"


def predict_generation(
    workspace: Workspace,
    options: GenerationOptions,
    *,
    measure: bool = True,
) -> GenerationResult:
    """Predict a decoder that generates as ``options`` say.

    With ``measure``, missing bricks are measured first; nothing can be measured on another
    target than the workspace's. Raises :class:`~bricks.errors.ModelError` for a model that is no
    decoder with a cache, and :class:`~bricks.errors.BricksError` for a step that cannot be
    predicted.
    """
    return ask(GenerationStudy(options, workspace), measure=measure)


class GenerationStudy(
    Study[GenerationOptions, GenerationResult, GenerationResult, GenerationResult]
):
    """A decoder that makes texts token by token."""

    _measured: Generation | None = None

    @cached_property
    def target(self) -> Target:
        """The system that is generation about."""
        options, workspace = self.options, self.workspace
        if options.target is None and options.system and is_published(options.model):
            card = card_called(workspace, options.system)
            if card is not None:
                return card
        target = target_asked(workspace, options.system, options.target)
        if target.system.quota is not None:
            raise UsageError(
                "how fast text is generated is not known where a quota of"
                f" {target.system.processors:.3g} processors stops it, as on {target.system.name}:"
                " ask about a system with one processor or more, as --on NAME"
            )
        return target

    @property
    def observes(self) -> bool:
        """Whether texts are really generated too."""
        return self.options.check

    @property
    def _generation(self) -> Generation:
        """The generation of the options, once measured with the seconds between two steps."""
        return self._measured or self.options.generation

    def needs(self) -> Needs:
        """The bricks of all steps; nothing on another target than the workspace's."""
        # Long steps have a rule of their own, unless another precision than usual is asked for.
        return Needs(
            models=self.models,
            model_rule=_RULE if self.workspace.conditions.rule.precision == PRECISION else None,
        )

    @property
    def models(self) -> Sequence[Model]:
        """The prompt, and steps of one token; they need measurements on this host alone."""
        here = self.target.key == self.workspace.target.key
        return [*self._models.values()] if here else []

    def predict(self) -> GenerationResult:
        """Latencies of one batch of texts, and of requests at a rate."""
        steps = {key: self._step(key, model) for key, model in self._models.items()}
        sizes, prompts, lengths = self._sizes
        first, generation = self._generation.prompt_tokens, self._generation
        times = StepTimes(
            {size: steps[size, first, 0] for size in prompts},
            {size: [steps[size, 1, past] for past in lengths] for size in sizes},
        )
        result = generated(self._decoder.title, self.target, generation, times, self._memory())
        divided = divided_over(self.options.cards.tensor_parallel, self._network)
        result = replace(result, divided=divided, fitting_cards=self._fitting_cards(result))
        if generation.qps is None:
            return result
        return replace(result, load=load_of(times, generation, self.workspace.options.seed))

    def observe(self) -> Generator[None, GenerationResult, GenerationResult]:
        """Generate half of the texts before the prediction, and the others after it.

        The first half measures the seconds between two steps.
        """
        with GeneratedText(self.workspace, self._decoder, self._generation) as text:
            text.generate()
            self._measured = text.generation
            prediction = yield
            return text.checked(prediction)

    def result(
        self, prediction: GenerationResult, observation: GenerationResult | None
    ) -> GenerationResult:
        """The prediction; after a real run, with its latencies."""
        return prediction if observation is None else observation

    @property
    def _sizes(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Batch sizes of estimated steps, batch sizes of prompts, and cache lengths."""
        generation = self._generation
        at_once = generation.qps is None
        last = generation.prompt_tokens + generation.new_tokens - 2
        return (
            [generation.batch] if at_once else batch_sizes(generation.batch),
            [generation.batch] if at_once else [1],
            lengths_between(generation.prompt_tokens, last) if generation.new_tokens > 1 else [],
        )

    @cached_property
    def _decoder(self) -> Steps:
        options = self.options
        asked, name, quantisation = options.generation, options.model, options.quantisation
        cards, published = self.options.cards.tensor_parallel, is_published(name)
        if self.target.system.accelerator is not None and published:
            steps: Steps = card_steps(name, self.target, quantisation, cards)
        elif cards > 1:
            lacks = "--on h100" if published else "a published architecture such as llama-2-70b"
            raise UsageError(
                f"--tensor-parallel {cards} divides published architectures over GPUs, not {name}"
                f" on {self.target.system.name}: give {lacks}, or leave it out"
            )
        else:
            steps = steps_of(self.workspace, name, quantisation)
        most, tokens = steps.most_tokens, asked.prompt_tokens + asked.new_tokens
        if most is not None and tokens > most:
            raise UsageError(f"{steps.title} knows {most} positions: {tokens} tokens are too many")
        return steps

    @cached_property
    def _network(self) -> Network | None:
        """The network between the cards that divide the decoder; None for one card."""
        return network_between(self.target.system, self.options.cards)

    def _fitting_cards(self, result: GenerationResult) -> int | None:
        """The fewest cards that hold the decoder, if those asked for do not."""
        decoder, needed_bytes = self._decoder, result.needed_bytes
        if result.fits or needed_bytes is None or not isinstance(decoder, CardSteps):
            return None
        generation = self._generation
        tokens = generation.prompt_tokens + generation.new_tokens - 1

        def kept_bytes(cards: int) -> int:
            part = replace(decoder, cards=cards)
            return part.weight_bytes + part.cache_bytes(generation.batch, tokens)

        others_bytes = max(0, needed_bytes - kept_bytes(decoder.cards))
        return fitting_cards(
            self.target.system, decoder.architecture, decoder.cards,
            lambda cards: kept_bytes(cards) + others_bytes,
        )  # fmt: skip

    @cached_property
    def _models(self) -> Mapping[StepKey, Model]:
        """Prompts first; the last step is the largest."""
        sizes, prompts, lengths = self._sizes
        keys = [(size, self._generation.prompt_tokens, 0) for size in prompts]
        keys += [(size, 1, past) for size in sizes for past in lengths]
        return {key: self._decoder.read(self.workspace, *key) for key in keys}

    def _step(self, key: StepKey, model: Model) -> DecoderStep:
        batch, tokens, past = key
        known = basis(self.workspace, model, measure=False, target=self.target)
        network = self._network
        if network is not None:
            known = with_collectives(known, network)
        where = f"{batch} x {tokens} tokens after {past} on {self.target.system.name}"
        which = f"{model.name} in a step of {where}"
        run = run_latency(known, which, seed=self.workspace.options.seed)
        if tokens == 1 and run.device is None:
            drift_s = MEMORY_DRIFT * run.latency_s.value
            run = replace(run, latency_s=run.latency_s.widened(drift_s).positive())
        found = None
        if network is not None and known.device is not None:
            found = step_collectives(known.plan, known.device.bricks, network)
        return DecoderStep(batch, tokens, past, run, found)

    def _memory(self) -> GenerationMemory:
        generation, largest = self._generation, [*self._models.values()][-1]
        tokens = generation.prompt_tokens + generation.new_tokens - 1
        cache_bytes = self._decoder.cache_bytes(generation.batch, tokens)
        if isinstance(self._decoder, CardSteps):
            first, *_, last = [*self._models.values()] * 2
            peaks = [
                predict_memory(self.workspace, model, target=self.target) for model in (first, last)
            ]
            known = [peak for peak in peaks if isinstance(peak, PeakMemory)]
            unknown = tuple(dict.fromkeys(reason for peak in known for reason in peak.unknown))
            peak_bytes = max((peak.peak_bytes for peak in known), default=None)
            return GenerationMemory(self._decoder.weight_bytes, cache_bytes, peak_bytes, unknown)
        memory = predict_memory(self.workspace, largest, target=self.target)
        if isinstance(memory, UnknownMemory):
            return GenerationMemory(None, cache_bytes, None, (memory.reason,))
        return GenerationMemory(memory.weight_bytes, cache_bytes, memory.peak_bytes, memory.unknown)


def generated(
    name: str,
    target: Target,
    generation: Generation,
    times: StepTimes,
    memory: GenerationMemory,
) -> GenerationResult:
    """The result of ``generation`` for one batch of texts that begin together."""
    size = generation.batch if generation.qps is None else 1
    prompt, steps = times.prompts[size], times.steps[size]
    further = generation.new_tokens - 1
    pasts = range(generation.prompt_tokens, generation.prompt_tokens + further)
    ttft_s = prompt.run.mean_s.shifted(generation.step_s)
    tpot_s, total_s = None, ttft_s
    if further:
        median_s = common_sum(times.at(size, past) for past in pasts).scaled(1 / further)
        tpot_s = replace(steps[-1].run, latency_s=median_s).mean_s.shifted(generation.step_s)
        total_s = common_sum((ttft_s, tpot_s.scaled(further)))
    tokens = size * generation.new_tokens
    return GenerationResult(
        model=name,
        target=target,
        generation=generation,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        total_s=total_s,
        tokens_per_s=total_s.map(lambda seconds: rate(tokens, seconds)),
        prompt=prompt,
        shown=steps,
        times=times,
        memory=memory,
    )


def network_between(system: System, options: CardOptions) -> Network | None:
    """The network between the cards of ``system`` that ``options`` ask for; None for one card.

    Raises :class:`UsageError` for cards that NVLink does not join, unless a network is stated.
    """
    if options.tensor_parallel == 1:
        return None
    if options.bandwidth is not None and options.latency is not None:
        return StatedNetwork(options.bandwidth, options.latency)
    linked, asked = linked_cards(system.accelerator), options.tensor_parallel
    if linked is None or asked > linked.nvlink.cards:
        joined = 0 if linked is None else linked.nvlink.cards
        raise UsageError(
            f"--tensor-parallel {asked}: NVLink joins {joined or 'no'} cards of {system.name}, by"
            " its data sheet: state the network between them, such as --bandwidth 400Gbit"
            " --latency 5us"
        )
    return linked


def divided_over(cards: int, network: Network | None) -> DividedOver:
    """The facts of ``cards`` and of the ``network`` between them."""
    if isinstance(network, StatedNetwork):
        return DividedOver(cards, network.name, STATED, network.bandwidth, network.latency_s)
    if isinstance(network, LinkedCards):
        bandwidth = network.nvlink.one_way_bytes_per_s
        return DividedOver(cards, network.name, PUBLISHED, bandwidth)
    return DividedOver(cards)


def fitting_cards(
    system: System, of: Architecture, more_than: int, needed_bytes: Callable[[int], int]
) -> int | None:
    """The fewest cards that NVLink joins and whose memory holds the decoder; None if none do.

    ``needed_bytes`` are those of each of so many cards.
    """
    linked, card = linked_cards(system.accelerator), system.accelerator
    if linked is None or card is None:
        return None
    counts = range(more_than + 1, linked.nvlink.cards + 1)
    fitting = (n for n in counts if divides(of, n) and needed_bytes(n) <= card.memory_bytes)
    return next(fitting, None)


def predict_llm(workspace: Workspace, options: LlmOptions, *, measure: bool = True) -> LlmResult:
    """Predict a decoder that generates as ``options`` say, a row for each batch and system.

    A row that cannot be predicted is a failure among the others; raises its
    :class:`~bricks.errors.BricksError` where no row can. See
    :func:`~bricks.studies.generation.study.predict_generation`.
    """
    return ask(LlmStudy(options, workspace), measure=measure)


class LlmStudy(Study[LlmOptions, LlmResult, LlmResult, LlmResult]):
    """A decoder that makes texts in batches of several sizes."""

    @property
    def observes(self) -> bool:
        """Whether texts are really generated too."""
        return self.options.check

    def needs(self) -> Needs:
        """The bricks of the steps of all batches."""
        needs = [study.needs() for study in self._studies]
        models = {model.digest: model for need in needs for model in need.models}
        return replace(needs[0], models=[*models.values()])

    def predict(self) -> LlmResult:
        """A row for each batch on each system."""
        rows: list[GenerationResult | GenerationFailure] = []
        errors: list[BricksError] = []
        for study in self._studies:
            try:
                rows.append(study.predict())
            except BricksError as error:
                errors.append(error)
                of = study.options
                rows.append(
                    GenerationFailure(of.model, of.system or "", of.generation.batch, str(error))
                )
        if len(errors) == len(rows):
            raise errors[0]
        return LlmResult(self.options.model, self.workspace.target, rows)

    def observe(self) -> Generator[None, LlmResult, LlmResult]:
        """Generate texts of the only batch, before and after the prediction."""
        (study,) = self._studies
        with closing(study.observe()) as observing:
            next(observing)
            prediction = yield
            (row,) = prediction.known
            return replace(prediction, rows=[observation_of(observing, row)])

    def result(self, prediction: LlmResult, observation: LlmResult | None) -> LlmResult:
        """The prediction; after a real run, with its latencies."""
        return prediction if observation is None else observation

    @cached_property
    def _studies(self) -> Sequence[GenerationStudy]:
        options = self.options
        if options.systems is not None and ALL in options.systems:
            backend = self.workspace.runtime.backend
            known = self.workspace.known.systems.targets()
            names = {each.system.name for each in known if each.runtime.backend == backend}
            options = replace(options, systems=sorted(names))
        return [GenerationStudy(each, self.workspace) for each in options.questions]
