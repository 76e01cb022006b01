"""One catalogue, two languages: every word of the page, for gr.I18n, for Python and for the canvas."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter

from kev_engine.errors import KevError

EN, ZH = "en", "zh-CN"
LANGUAGES = (EN, ZH)

# key: (English, Chinese)
CATALOGUE: Mapping[str, tuple[str, str]] = {
    "title": ("Kev Workbench", "Kev 工作台"),
    "skip": ("Skip to the questions", "跳到问题"),
    "threads": ("{count} threads", "{count} 线程"),
    "temperature_default": ("T default {value} · v{version}", "默认温度 {value} · v{version}"),
    "theme": ("Light or dark", "浅色或深色"),
    "language": ("Language", "语言"),
    "run": ("Run", "运行"),
    "stop": ("Stop", "停止"),
    "audit": ("Audit", "审计"),
    "add": ("Add a question", "添加问题"),
    "duplicate": ("Duplicate", "复制一份"),
    "remove": ("Remove", "移除"),
    "presets": ("Try", "示例"),
    # a card
    "question": ("Question", "问题"),
    "question_hint": ("Ask something", "想问什么"),
    "context": ("Context", "上下文"),
    "context_hint": ("Context that only this question may read", "只有这个问题能读到的上下文"),
    "adapter": ("Adapter", "适配器"),
    "base": ("base", "基座"),
    "temperature": ("T", "温度"),
    "max_new_tokens": ("max", "上限"),
    "seed": ("seed", "种子"),
    "seed_hint": ("fresh", "随机"),
    "more": ("more", "更多"),
    "system": ("System", "系统提示"),
    "system_hint": ("the model's own", "模型自带"),
    "top_k": ("top-k", "top-k"),
    "top_p": ("top-p", "top-p"),
    "min_p": ("min-p", "min-p"),
    "repetition_penalty": ("repetition penalty", "重复惩罚"),
    # names of fields inside sentences
    "field.question": ("The question", "问题"),
    "field.context": ("The context", "上下文"),
    "field.temperature": ("Temperature", "温度"),
    "field.max_new_tokens": ("Max new tokens", "最多生成词元数"),
    "field.seed": ("Seed", "随机种子"),
    "field.top_k": ("Top-k", "top-k"),
    "field.top_p": ("Top-p", "top-p"),
    "field.min_p": ("Min-p", "min-p"),
    "field.repetition_penalty": ("Repetition penalty", "重复惩罚"),
    # the way out of a wrong value, one for each field of a card
    "way.temperature": ("a number from 0 (greedy) to 100, or empty for the default",
                        "0（贪心）到 100 之间的数，留空则用默认值"),
    "way.max_new_tokens": ("a whole number of 1 or more", "不小于 1 的整数"),
    "way.seed": ("a whole number from 0 to 2^63 - 1, or empty for a fresh one", "0 到 2^63 - 1 的整数，留空则随机"),
    "way.top_k": ("a whole number of 0 (off) or more", "不小于 0 的整数（0 为关闭）"),
    "way.top_p": ("a number above 0 and at most 1 (off)", "大于 0 且不大于 1 的数（1 为关闭）"),
    "way.min_p": ("a number from 0 (off) to below 1", "0（关闭）到 1 之间、小于 1 的数"),
    "way.repetition_penalty": ("a number above 0 and at most 100 (1 = off)", "大于 0 且不大于 100 的数（1 为关闭）"),
    # errors, by their code
    "error.empty": ("{field} is empty; write something to ask.", "{field}是空的，请写下想问的内容。"),
    "error.field": ("{field} is {value}, but it must be {way}.", "{field}的值是 {value}，但应为{way}。"),
    "error.invalid_field": ("{field} is {value}, but {way_out}.", "{field} 的值是 {value}，不能使用（{way_out}）。"),
    "error.limit_tokens": ("Max new tokens is {value}, but this public page allows at most {limit}.",
                           "最多生成词元数是 {value}，但这个公开页面最多允许 {limit}。"),
    "error.limit_text": ("{field} has {value} characters, but this public page allows at most {limit}; shorten it.",
                         "{field}有 {value} 个字符，但这个公开页面最多允许 {limit} 个，请缩短。"),
    "error.prompt_too_long": (
        "The question needs {num_tokens} tokens (prompt and new tokens) but {limit_name} holds {limit}; "
        "shorten the context or ask for fewer new tokens.",
        "这个问题需要 {num_tokens} 个词元（提示加生成），但{limit_name}只容 {limit} 个；请缩短上下文或少生成一些。"),
    "limit.model": ("the model", "模型"),
    "limit.kv": ("the KV memory", "KV 内存"),
    "error.too_many_questions": ("The run has {count} questions but at most {limit} are allowed; remove some.",
                                 "这次运行有 {count} 个问题，但最多允许 {limit} 个，请移除一些。"),
    "error.unknown_adapter": ("Adapter “{name}” is not loaded. Loaded: {loaded}.",
                              "适配器“{name}”没有加载。已加载：{loaded}。"),
    "error.engine_busy": ("The queue is full ({waiting} of {limit} places); try again when some have finished.",
                          "队列已满（{limit} 个位置用了 {waiting} 个），请等一些问题完成后再试。"),
    "error.engine_failed": ("A step failed ({cause}); this run was ended and the engine goes on.",
                            "有一步失败了（{cause}）；本次运行已结束，引擎继续工作。"),
    "error.engine_closed": ("The engine is closed; start the workbench again.", "引擎已关闭，请重新启动工作台。"),
    "error.other": ("{message}", "引擎报告：{message}"),
    "error.pool_full": ("All {limit} cards are in use; remove one first.", "{limit} 张卡片都用上了，请先移除一张。"),
    "error.last_card": ("The last card stays.", "最后一张卡片会保留。"),
    "error.running": ("A run is going on; stop it first.", "正在运行，请先停止。"),
    # an answer
    "status.queued": ("waiting", "等待中"),
    "status.prefill": ("reading {done} of {total} tokens", "正在读第 {done} / {total} 个词元"),
    "status.streaming": ("streaming", "生成中"),
    "status.stop": ("stop", "结束"),
    "status.length": ("length", "到达上限"),
    "status.cancelled": ("stopped", "已停止"),
    "status.error": ("error", "出错"),
    "answer.tokens": ("{count} tokens", "{count} 个词元"),
    "answer.ttft": ("TTFT {ms} ms", "首词元 {ms} ms"),
    "answer.rate": ("{rate} tok/s", "{rate} 词元/秒"),
    "answer.seed": ("seed {seed}", "种子 {seed}"),
    "answer.hint": ("The answer appears here.", "回答会出现在这里。"),
    "answer.nothing": ("The model ended at once.", "模型没有写任何内容就结束了。"),
    # the mask
    "mask.title": ("who reads whom", "谁能读谁"),
    "mask.story": ("story", "全程"),
    "mask.step": ("step", "当前步"),
    "mask.axes": ("keys → · queries ↓", "键 → · 查询 ↓"),
    "mask.step_of": ("step {index}", "第 {index} 步"),
    "mask.empty": ("Run, and the mask of the executed plan is drawn here.", "运行后，这里画出实际执行的掩码。"),
    "mask.reads": ("query {q} ‘{qt}’ ({ql}) reads key {k} ‘{kt}’ ({kl})",
                   "查询 {q} ‘{qt}’（{ql}）能读键 {k} ‘{kt}’（{kl}）"),
    "mask.may_not": ("query {q} ‘{qt}’ ({ql}) may not read key {k} ‘{kt}’ ({kl})",
                     "查询 {q} ‘{qt}’（{ql}）不能读键 {k} ‘{kt}’（{kl}）"),
    "mask.others": ("another person's question in the same forward", "同一次前向中别人的问题"),
    "mask.label": ("Attention mask: {segments} segments, {tokens} tokens, {allowed} allowed cells",
                   "注意力掩码：{segments} 段，{tokens} 个词元，{allowed} 个允许的格子"),
    "mask.segment": ("segment", "段"),
    "mask.prompt": ("prompt", "提示"),
    "mask.generated": ("generated", "生成"),
    "mask.locked": ("query {q} ‘{qt}’ ({ql}) · position {position} · reads {count} of {total} keys: {runs}",
                    "查询 {q} ‘{qt}’（{ql}）· 位置 {position} · 能读 {total} 个键中的 {count} 个：{runs}"),
    # memory
    "kv.title": ("KV memory", "KV 内存"),
    "kv.used": ("{used} of {budget} · predicted {predicted} · peak {peak}",
                "{used} / {budget} · 预测 {predicted} · 峰值 {peak}"),
    "kv.empty": ("{budget} · {per_token} a token", "{budget} · 每词元 {per_token}"),
    "kv.scale": ("bar ends at {size} MiB", "条长为 {size} MiB"),
    "kv.others": ("others", "他人"),
    "kv.reserved": ("reserved", "已预留"),
    "kv.free": ("and {count} more free blocks", "另有 {count} 个空闲块"),
    "kv.block": ("block {index} · {owner} · generation {generation}", "块 {index} · {owner} · 第 {generation} 代"),
    "kv.block_shared": ("block {index} · {owner} · generation {generation} · in {refs} tables",
                        "块 {index} · {owner} · 第 {generation} 代 · 在 {refs} 张表中"),
    "kv.nobody": ("free", "空闲"),
    "kv.label": ("KV blocks: {used} of {total} in use", "KV 块：{total} 个中用了 {used} 个"),
    # the run in one line
    "summary.prefill": ("{count} prefill ({tokens} tokens)", "{count} 次预填充（{tokens} 个词元）"),
    "summary.steps": ("{count} steps", "{count} 步"),
    "summary.sequences": ("{count} sequences each", "每步 {count} 个序列"),
    "summary.seconds": ("{seconds} s", "{seconds} 秒"),
    "summary.leaked": ("{count} blocks leaked", "泄漏 {count} 个块"),
    # the verdict
    "verdict.unaudited": ("Not audited.", "尚未审计。"),
    "verdict.hint": ("Audit proves that no question reads another.", "“审计”会证明没有问题能读到别的问题。"),
    "verdict.running": ("Auditing: every question again by itself, with its neighbours swapped, and with foreign "
                        "memory poisoned.", "审计中：逐个单独重跑、替换邻居、并污染他人的内存。"),
    "verdict.isolated": ("Isolated", "已隔离"),
    "verdict.leaks": ("Leaks", "有泄漏"),
    "verdict.foreign": ("{allowed} of {total} foreign cells allowed", "{total} 个外部格子中允许了 {allowed} 个"),
    "verdict.alone": ("alone {value}", "单独 {value}"),
    "verdict.neighbour": ("neighbour swap {value}", "换邻居 {value}"),
    "verdict.poison": ("poison {value}", "污染 {value}"),
    "proof.title": ("proofs, question by question", "逐题证明"),
    "proof.question": ("question", "问题"),
    "proof.alone": ("alone, max |Δlogit|", "单独，最大 |Δlogit|"),
    "proof.tokens": ("same tokens", "词元相同"),
    "proof.neighbour": ("neighbour swap", "换邻居"),
    "proof.poison": ("poison", "污染"),
    "proof.yes": ("yes", "是"),
    "proof.no": ("no", "否"),
    "proof.ties": ("yes, {count} ties", "是，{count} 处并列"),
    # presets
    "preset.secrets": ("Secrets next door", "隔壁的秘密"),
    "preset.secrets.note": ("Two neighbours hold a secret; the third is asked for it and cannot know.",
                            "两位邻居各有一个秘密；第三个问题去打听，却无从知道。"),
    "preset.voices": ("One question, several voices", "一问多声"),
    "preset.voices.note": ("The same question through the base model and every adapter, in one forward.",
                           "同一个问题，基座和每个适配器在同一次前向里回答。"),
    "preset.temperatures": ("Temperatures", "不同温度"),
    "preset.temperatures.note": ("One prompt at four temperatures, side by side.", "同一个提示，四种温度，并排比较。"),
    "preset.lengths": ("Long and short", "长短不一"),
    "preset.lengths.note": ("Prompts of very different length in one row, without padding.",
                            "长度悬殊的提示排在同一行，没有填充。"),
    "preset.chinese": ("Chinese", "中文"),
    "preset.chinese.note": (
        "The embedded 135M model is English-first; for Chinese start with --model hf:Qwen/Qwen3-0.6B.",
        "内置的 135M 模型以英文为主；要用中文，请以 --model hf:Qwen/Qwen3-0.6B 启动。"),
}

_POSITION = {language: index for index, language in enumerate(LANGUAGES)}


def say(language: str, key: str, **facts: object) -> str:
    """The text of `key` in `language`, with its placeholders filled from `facts`."""
    return CATALOGUE[key][_POSITION[language]].format(**facts)


def texts(language: str) -> dict[str, str]:
    """Every text of one language by its key, placeholders unfilled: what the browser gets."""
    return {key: pair[_POSITION[language]] for key, pair in CATALOGUE.items()}


def placeholders(text: str) -> set[str]:
    """The names between braces."""
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def sentence(error: KevError, language: str) -> str:
    """The error as one sentence in `language`, from its code and facts."""
    facts = dict(error.facts)
    field = str(facts.get("field", ""))
    if error.code == "invalid_field":
        name = say(language, f"field.{field}") if f"field.{field}" in CATALOGUE else field
        if field == "question":
            return say(language, "error.empty", field=name)
        if f"way.{field}" in CATALOGUE:
            way = say(language, f"way.{field}")
            return say(language, "error.field", field=name, value=facts["value"], way=way)
        return say(language, "error.invalid_field", field=name, value=facts["value"], way_out=facts["way_out"])
    if error.code in ("limit_text", "limit_tokens"):
        facts["field"] = say(language, f"field.{field}")
    if error.code == "prompt_too_long":
        key = "limit.model" if "model" in str(facts["limit_name"]) else "limit.kv"
        facts["limit_name"] = say(language, key)
    key = f"error.{error.code}"
    return say(language, key, **facts) if key in CATALOGUE else say(language, "error.other", message=str(error))
