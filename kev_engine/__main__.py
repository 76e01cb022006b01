"""The command line: `python -m kev_engine ask FILE.json` and `python -m kev_engine audit FILE.json`.

Exit status: 0 when every question was answered (ask) or the run is isolated (audit), 1 when not, 2 for a file or an
option that cannot be used.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from kev_engine.config import POLICIES, EngineConfig
from kev_engine.errors import InvalidField, KevError
from kev_engine.isolation.faults import FAULTS
from kev_engine.runtime.audit import Audit
from kev_engine.runtime.budget import KV_DTYPES, WEIGHT_DTYPES
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.profile import table
from kev_engine.runtime.questions_file import QuestionsFile, ask_file, read_questions, run_json
from kev_engine.schema import Run

OK, NOT_ALL, UNUSABLE = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    """The options of both commands."""
    top = argparse.ArgumentParser(prog="python -m kev_engine", description="Several questions in one forward pass.")
    commands = top.add_subparsers(dest="command", required=True)
    ask = commands.add_parser("ask", help="answer the questions of a file")
    ask.add_argument("--profile", metavar="TRACE.json", type=Path,
                     help="write a Chrome trace, and a table of phases to stderr")
    audit = commands.add_parser("audit", help="prove that the questions of a file do not read each other")
    audit.add_argument("--fault", metavar="NAME", help=f"inject a fault: {', '.join(FAULTS)}")
    for command in (ask, audit):
        command.add_argument("file", metavar="FILE.json")
        command.add_argument("--json", action="store_true", help="print one JSON object")
        command.add_argument("--model", metavar="M", help="embedded, a folder, hf:…, modelscope:… or gguf:…")
        command.add_argument("--backend", metavar="B", help="flash, segment or dense")
        command.add_argument("--device", metavar="D", help="auto, cpu or cuda")
        command.add_argument("--dtype", metavar="T", help=f"of the weights: {', '.join(WEIGHT_DTYPES)}")
        command.add_argument("--kv-dtype", metavar="T", help=f"of keys and values: {', '.join(KV_DTYPES)}")
        command.add_argument("--threads", type=int, metavar="N")
        command.add_argument("--kv-budget", type=int, metavar="BYTES", dest="kv_budget_bytes")
        command.add_argument("--policy", metavar="P", help=f"who is admitted first: {', '.join(POLICIES)}")
        command.add_argument("--prefix-cache", type=int, metavar="BYTES", dest="prefix_cache_bytes", help="0 = off")
        command.add_argument("--prefill-chunk", type=int, metavar="TOKENS", help="prompt tokens a step beside decoding")
        command.add_argument("--adapter", action="append", default=[], metavar="NAME=SOURCE", dest="adapters",
                             help="a folder, a .zip, hf:owner/name or modelscope:owner/name; may be repeated")
    return top


def adapters_of(given: list[str]) -> dict[str, str]:
    """Adapter sources by name. Raises InvalidField for an entry that is not NAME=SOURCE, or a name given twice."""
    adapters: dict[str, str] = {}
    for entry in given:
        name, _, source = entry.partition("=")
        if not name or not source:
            raise InvalidField("--adapter", entry, "it must be NAME=SOURCE")
        if name in adapters:
            raise InvalidField("--adapter", entry, f"{name!r} was given before; each name must be its own")
        adapters[name] = source
    return adapters


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status; errors go to stderr as one line."""
    given = parser().parse_args(arguments)
    try:
        file = read_questions(given.file)
        config = EngineConfig.from_env(
            model=given.model, backend=given.backend, device=given.device, dtype=given.dtype, kv_dtype=given.kv_dtype,
            threads=given.threads, kv_budget_bytes=given.kv_budget_bytes,
            policy=given.policy, prefix_cache_bytes=given.prefix_cache_bytes, prefill_chunk=given.prefill_chunk,
            adapters=adapters_of(given.adapters) or None,
        )
        # A file is asked whole: with a context and a common prompt more for each question at most.
        num_sequences = sum(question.n + 2 for question in file.questions)
        config = replace(
            config, max_questions=max(config.max_questions, len(file.ids)),
            max_waiting=max(config.max_waiting, num_sequences),
        )
        with Engine(config) as engine:
            for warning in (warning for adapter in engine.adapters.list() for warning in adapter.warnings):
                print(f"kev_engine: {warning}", file=sys.stderr)
            return _ask(engine, file, given) if given.command == "ask" else _audit(engine, file, given)
    except KevError as error:
        print(f"kev_engine: {error}", file=sys.stderr)
        return UNUSABLE


def _ask(engine: Engine, file: QuestionsFile, given: argparse.Namespace) -> int:
    if given.profile is None:
        run = ask_file(engine, file)
    else:
        with engine.profiled(given.profile) as profile:
            run = ask_file(engine, file)
        print(table(profile.phases(run.stats), len(run.stats.tokens_per_forward)), file=sys.stderr)
    info = engine.info
    print(_json(run) if given.json else _text(run, f"{info.backend_reason} Kernels: {info.kernels}"))
    return NOT_ALL if any(answer.finish_reason == "error" for answer in run.answers) else OK


def _json(run: Run) -> str:
    return json.dumps(run_json(run), ensure_ascii=False, indent=1, allow_nan=False)


def _text(run: Run, reasons: str) -> str:
    blocks = [
        f"[{answer.question_id}] {answer.error or answer.text.strip()}\n"
        f"    {answer.finish_reason} · {_counted(answer.output_tokens, 'token')}"
        + (f" · TTFT {answer.ttft_ms:.0f} ms" if answer.ttft_ms is not None else "")
        for answer in run.answers
    ]
    stats = run.stats
    blocks.append(
        f"{_counted(len(stats.tokens_per_forward), 'forward')} in {stats.seconds:.2f} s · {stats.model} · "
        f"{stats.dtype}, keys and values {stats.kv_dtype} · {reasons}"
    )
    return "\n".join(blocks)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _audit(engine: Engine, file: QuestionsFile, given: argparse.Namespace) -> int:
    if file.refused:
        raise next(iter(file.refused.values()))
    verdict = engine.audit(file.questions, file.shared, given.fault)
    print(json.dumps(verdict.to_json(), indent=1, allow_nan=False) if given.json else _verdict(verdict))
    return OK if verdict.isolated else NOT_ALL


def _verdict(verdict: Audit) -> str:
    lines = [
        f"[{proof.question_id}] alone {proof.alone_max_abs:.1e} (bound {proof.alone_bound:.1e})"
        f" · tokens {'equal' if proof.alone_tokens_equal else 'differ'}, {_counted(proof.ties, 'tie')}"
        f" · neighbour swap {proof.neighbour_max_abs:g} · poison {proof.poison_max_abs:g}"
        for proof in verdict.questions
    ]
    lines.append(f"{'isolated' if verdict.isolated else 'NOT isolated'}:"
                 f" {_counted(verdict.allowed_cells, 'cell')} allowed,"
                 f" {verdict.foreign_cells_allowed} of {_counted(verdict.foreign_cells, 'foreign cell')} readable in"
                 f" {_counted(verdict.num_steps, 'step')}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
