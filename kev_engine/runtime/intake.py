"""Intake: from questions to sequences, on the caller's thread, so that a mistake is told before anything starts."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from kev_engine.adapters.pool import AdapterPool, AdapterVersion
from kev_engine.cache.blocks import BlockPool
from kev_engine.cache.prefix import Identity, KeyChain
from kev_engine.errors import InputError, InvalidField, KevError, PromptTooLong
from kev_engine.isolation.layout import PackedLayout, pack
from kev_engine.models.load import ModelFacts
from kev_engine.runtime.audit import Subject
from kev_engine.runtime.events import Refused, SegmentInfo
from kev_engine.runtime.reply import ERROR, Reply
from kev_engine.runtime.sequence import Sequence
from kev_engine.runtime.speculative import Drafter
from kev_engine.sampling.grammar import GrammarTokenizer, compile_grammar
from kev_engine.sampling.temperature import Temperature, TemperatureVersion
from kev_engine.schema import Answer, Question, SharedContext, with_temperature
from kev_engine.text.chat import ChatEncoder
from kev_engine.text.detokenize import Detokenizer
from kev_engine.text.stop import StopMatcher

GroupKey = tuple[object, ...]
"""What stories that may share memory have in common: a shared context, or a prompt that is asked several times."""


@dataclass(frozen=True, eq=False)
class Story:
    """One segment to be: its sequence, what it is to people, and the reply it feeds (none for a context)."""

    sequence: Sequence
    info: SegmentInfo
    reply: Reply | None = None


@dataclass(frozen=True, eq=False)
class Intaken:
    """A run ready for the worker. Story k is segment k of `layout`; `refused` are the questions left out."""

    stories: tuple[Story, ...]
    refused: tuple[Refused, ...]
    held: tuple[AdapterVersion, ...]
    kv_bytes_predicted: int

    @property
    def layout(self) -> PackedLayout:
        """The prompts as packed; a child's segment holds only what it does not inherit."""
        index = {story.sequence: number for number, story in enumerate(self.stories)}
        sequences = [story.sequence for story in self.stories]
        parents = [None if sequence.parent is None else index[sequence.parent] for sequence in sequences]
        return pack([sequence.num_prompt - sequence.num_inherited for sequence in sequences], parents)

    @property
    def replies(self) -> list[Reply]:
        return [story.reply for story in self.stories if story.reply is not None]

    @property
    def subjects(self) -> list[Subject]:
        """The same stories for the audit."""
        return [
            Subject(None, story.sequence, frozenset()) if story.reply is None else
            Subject(story.reply.question.id, story.sequence, story.reply.stop_token_ids)
            for story in self.stories
        ]


class Intake:
    """Turns questions into stories. Keeps nothing of a run."""

    def __init__(
        self, tokenizer: Any, facts: ModelFacts, blocks: BlockPool, bytes_per_block: int, adapters: AdapterPool,
        temperature: Temperature, identity: Identity,
    ) -> None:
        self._tokenizer = tokenizer
        self._facts = facts
        self._blocks = blocks
        self._bytes_per_block = bytes_per_block
        self._adapters = adapters
        self._temperature = temperature
        self._identity = identity
        self._encoder = ChatEncoder(tokenizer, facts.vocab_size)
        self._grammars = GrammarTokenizer(tokenizer, facts.vocab_size, sorted(facts.stop_token_ids))
        self._ids = itertools.count()
        self._id_lock = threading.Lock()

    def take(self, questions: Many[Question], shared: Many[SharedContext] = ()) -> Intaken:
        """The run's stories, the readers of one context behind it. Adapter versions are held until `release`.

        A question that cannot be asked is refused and the others stay. Raises InvalidField for a run without
        questions and for ids or shared names that appear twice.
        """
        if not questions:
            raise InvalidField("questions", [], "a run has at least one question")
        _require_unique("id", [question.id for question in questions])
        _require_unique("shared", [context.name for context in shared])
        known = {context.name: context for context in shared}
        temperature = self._temperature.current()
        groups: dict[GroupKey, list[Story]] = {}
        refused: list[Refused] = []
        held: list[AdapterVersion] = []
        for question in questions:
            try:
                version = self._adapters.acquire(question.adapter)
            except KevError as error:
                refused.append(_refuse(question, error, temperature))
                continue
            key = _group_key(question, version)
            try:
                stories = self._stories(question, known, version, groups.get(key, []), temperature)
            except InputError as error:
                self._adapters.release(version)
                refused.append(_refuse(question, error, temperature))
                continue
            held.append(version)
            groups.setdefault(key, []).extend(stories)
        ordered = tuple(itertools.chain.from_iterable(groups.values()))
        with self._id_lock:
            for story in ordered:
                story.sequence.id = next(self._ids)
        blocks = sum(self._blocks_of(story.sequence) for story in ordered)
        return Intaken(ordered, tuple(refused), tuple(held), blocks * self._bytes_per_block)

    def release(self, taken: Intaken) -> None:
        """Let go of the adapter versions a run held; once for each run."""
        for version in taken.held:
            self._adapters.release(version)

    def _stories(
        self, question: Question, known: Mapping[str, SharedContext], version: AdapterVersion,
        group: Many[Story], temperature: TemperatureVersion,
    ) -> list[Story]:
        """What this question adds to its group: its shared context if it is the first reader, and its samples."""
        shared = None
        if question.shared is not None:
            shared = known.get(question.shared)
            if shared is None:
                names = ", ".join(known) or "none"
                raise InvalidField("shared", question.shared, f"the run's shared contexts are: {names}", question.id)
        context = group[0].sequence if group and shared is not None else None
        above = () if shared is None else tuple(
            context.tokens if context is not None else self._encoder.encode_shared(shared).token_ids
        )
        own = self._encoder.encode(question, shared).token_ids
        self._require_room(question, len(above), len(own))
        grammar = compile_grammar(question, self._grammars)
        root_key = self._identity.root_key(version.digest)

        def sequence(tokens: Many[int], max_new_tokens: int, parent: Sequence | None) -> Sequence:
            return Sequence(
                list(tokens), max_new_tokens, version.adapter_id, parent, priority=question.priority,
                chain=KeyChain(root_key),
            )

        stories: list[Story] = []
        if shared is not None and context is None:
            context = sequence(above, 0, None)
            stories.append(Story(context, self._info(shared.name, above, question, version, is_shared=True)))
        parent, rest = context, own
        if question.n > 1 and len(own) > 1:
            # The samples' common prompt is a context of theirs; its last token is left for each to start from. Another
            # question of this run that samples the same prompt has stored it already.
            prompt = [*above, *own[:-1]]
            stored = [story.sequence for story in group if story.reply is None]
            parent = next((one for one in stored if one.tokens == prompt), None)
            if parent is None:
                parent = sequence(prompt, 0, context)
                stories.append(Story(parent, self._info(question.id, own[:-1], question, version, is_shared=True)))
            rest = own[-1:]
        seed = secrets.randbits(63) if question.sampling.seed is None else question.sampling.seed
        params = replace(with_temperature(question.sampling, temperature.value), seed=seed)
        for number in range(question.n):
            drawing = sequence([*above, *own], question.max_new_tokens, parent)
            reply = Reply(
                question, number, drawing, params, Detokenizer(self._tokenizer), StopMatcher(question.stop),
                self._facts.stop_token_ids, temperature.version, version.version,
                grammar.copy() if grammar is not None else None,
                Drafter(question.draft, drawing.tokens) if question.draft else None,
            )
            for relative in drawing.lineage:
                relative.is_scored |= question.prompt_logprobs
            stories.append(Story(drawing, self._info(question.id, rest, question, version, sample=number), reply))
        return stories

    @staticmethod
    def _info(
        name: str, token_ids: Many[int], question: Question, version: AdapterVersion, is_shared: bool = False,
        sample: int = 0,
    ) -> SegmentInfo:
        return SegmentInfo(name, tuple(token_ids), question.adapter, version.adapter_id, is_shared, sample)

    def _require_room(self, question: Question, num_above: int, num_own: int) -> None:
        """Raise PromptTooLong where the story can never fit the model's context or the KV budget."""
        needed = num_above + num_own + question.max_new_tokens
        if needed > self._facts.max_context:
            raise PromptTooLong(needed, self._facts.max_context, "model", question.id)
        size = self._blocks.block_size
        # The story grows from its contexts down: each level shares the full blocks of the one above.
        levels = [0, num_above, num_above + num_own - 1 if question.n > 1 else num_above, needed - 1]
        blocks = sum(self._blocks.blocks_for(end) - start // size for start, end in pairwise(levels) if end > start)
        if blocks > self._blocks.num_usable:
            raise PromptTooLong(
                blocks * size, self._blocks.num_usable * size, "kv", question.id,
                "shorten the context, ask for fewer new tokens or raise the KV budget",
            )

    def _blocks_of(self, sequence: Sequence) -> int:
        return self._blocks.blocks_for(sequence.num_projected) - sequence.num_inherited // self._blocks.block_size


def _group_key(question: Question, version: AdapterVersion) -> GroupKey:
    if question.shared is not None:
        return ("shared", question.shared, version.adapter_id)
    if question.n == 1:
        return ("question", question.id)
    return ("prompt", question.question, question.context, question.system, question.messages,
            question.prompt_token_ids, question.priority, version.adapter_id)


def _refuse(question: Question, error: KevError, temperature: TemperatureVersion) -> Refused:
    answer = Answer(
        question.id, "", (), ERROR, with_temperature(question.sampling, temperature.value), question.max_new_tokens,
        prompt_tokens=0, temperature_version=temperature.version, error=str(error), adapter=question.adapter,
    )
    return Refused(question.id, error, answer)


def _require_unique(field: str, names: Many[str]) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InvalidField(field, name, "it appears twice; each must be its own")
