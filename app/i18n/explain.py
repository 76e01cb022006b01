"""The words of the explanation of a run: its figures, and what would move them."""

from __future__ import annotations

from collections.abc import Mapping

# key: (English, Chinese)
WORDS: Mapping[str, tuple[str, str]] = {
    "explain.title": ("Explain this run", "解释这次运行"),
    "explain.shares": (
        "Prefill took {prefill}, decode {decode}, planning and drawing {other} of {seconds} s.",
        "在 {seconds} 秒中，预填充占 {prefill}，解码占 {decode}，规划与采样占 {other}。",
    ),
    "explain.memory": (
        "A decode step had {width} {width|sequence|sequences}; KV memory was {kv} full at its peak; {cached} of "
        "{prompt} prompt {prompt|token|tokens} came from the prefix cache.",
        "每个解码步骤有 {width} 个序列；KV 内存最多用了 {kv}；{prompt} 个提示词元中有 {cached} 个来自前缀缓存。",
    ),
    "explain.phase": ("phase", "阶段"),
    "explain.prefill": ("prefill", "预填充"),
    "explain.decode": ("decode", "解码"),
    "explain.forwards": ("forwards", "前向次数"),
    "explain.tokens_per_step": ("tokens each", "每次词元"),
    "explain.flops_per_step": ("work each", "每次计算"),
    "explain.bytes_per_step": ("read each", "每次读写"),
    "explain.intensity": ("FLOP/byte", "FLOP/字节"),
    "explain.bound": ("bound by", "受限于"),
    "explain.reached": ("of the roof", "达到上限的"),
    "explain.by_compute": ("compute", "计算"),
    "explain.by_memory": ("memory", "内存带宽"),
    "explain.machine": (
        "This machine, measured: {flops} GFLOP/s and {bytes} GB/s. Below {balance} FLOP a byte the memory is the "
        "roof, above it the arithmetic.",
        "本机实测：{flops} GFLOP/s，{bytes} GB/s。每字节低于 {balance} FLOP 时受内存带宽限制，高于则受计算限制。",
    ),
    "explain.unmeasured": ("This machine was not measured, so no roof is named.", "没有测量本机，因此不给出上限。"),
    "explain.ttft": ("First token: {ms} ms on average. What would move it:", "首词元：平均 {ms} ms。影响它的因素："),
    "explain.tpot": (
        "Later tokens: {ms} ms each. What would move them:",
        "后续词元：平均每个 {ms} ms。影响它们的因素：",
    ),
    "explain.since": ("Since the run before", "与上一次运行相比"),
    "explain.unchanged": ("No figure moved.", "没有变化。"),
    # what moves the first token
    "lever.queue": (
        "{share} of that time was spent waiting for memory or for other runs: raise the KV budget, or ask fewer at "
        "once.",
        "其中 {share} 的时间在等待内存或其他运行：请提高 KV 预算，或减少同时提问的数量。",
    ),
    "lever.share": (
        "{count} prompt {count|token was|tokens were} computed more than once, because prompts begin alike: put that "
        "text into a shared context.",
        "有 {count} 个提示词元因开头相同而重复计算：请把这段文本放进共享上下文。",
    ),
    "lever.prompt": (
        "{count} prompt {count|token|tokens} at {ms} ms each: the arithmetic is the limit, so only fewer prompt "
        "tokens or a faster processor help; a larger batch does not.",
        "共 {count} 个提示词元，每个 {ms} ms：计算是瓶颈，只有减少提示词元或更快的处理器才有帮助，加大批次没有用。",
    ),
    "lever.prompt_memory": (
        "{count} prompt {count|token|tokens} at {ms} ms each: so few that the weights are read for little; longer or "
        "more prompts would cost hardly more.",
        "共 {count} 个提示词元，每个 {ms} ms：数量太少，读取权重没有充分利用；更长或更多的提示几乎不增加开销。",
    ),
    "lever.pieces": (
        "The prompts were read in {count} small {count|piece|pieces}: a larger token budget reads them in fewer.",
        "提示被分成 {count} 小块读取：更大的词元预算可以减少块数。",
    ),
    # what moves the later ones
    "lever.preempted": (
        "{count} {count|time|times} a question gave its memory back and was computed again: raise the KV budget.",
        "有 {count} 次问题让出内存并重新计算：请提高 KV 预算。",
    ),
    "lever.crowded": (
        "KV memory was {share} full: more questions would wait; raise the budget or keep KV in int8.",
        "KV 内存用了 {share}：更多问题将要等待；请提高预算，或以 int8 存储 KV。",
    ),
    "lever.mixed": (
        "In {count} {count|forward|forwards} answers waited for prompts beside them: --prefill-chunk makes that wait "
        "shorter.",
        "有 {count} 次前向中，回答在等待旁边的提示：--prefill-chunk 可缩短等待。",
    ),
    "lever.overhead": (
        "{share} of a decode step is neither arithmetic nor memory but the cost of many small operations; with "
        "{width} {width|question|questions} a step, more of them would share it.",
        "解码步骤中有 {share} 既不是计算也不是内存，而是大量小操作的开销；每步 {width} 个问题，更多问题可以分摊它。",
    ),
    "lever.kv": (
        "{share} of what a step reads are keys and values: shorter contexts, or KV in int8, make it faster.",
        "每步读取的数据中 {share} 是键和值：更短的上下文或 int8 的 KV 会更快。",
    ),
    "lever.weights": (
        "{share} of what a step reads are the weights, whether one question or many use them: with {width} a step, "
        "more questions cost little; a smaller dtype or model makes each step faster.",
        "每步读取的数据中 {share} 是权重，一个或多个问题都要读：每步 {width} 个，增加问题几乎不增加开销；更小的数据"
        "类型或模型会让每步更快。",
    ),
    "lever.wide": (
        "With {width} {width|question|questions} a step the arithmetic is the limit: fewer at once answer faster each.",
        "每步 {width} 个问题时计算是瓶颈：同时提问越少，每个回答越快。",
    ),
    "lever.drawing": (
        "{share} of the time went into planning and drawing tokens: penalties and grammars cost there.",
        "{share} 的时间用于规划和采样：惩罚和语法约束会增加这部分开销。",
    ),
    "lever.drafts": (
        "{share} of the drafted tokens were accepted: drafts pay.",
        "草稿词元有 {share} 被接受：草稿有效。",
    ),
    "lever.drafts_few": (
        "Only {share} of the drafted tokens were accepted: switch drafts off.",
        "草稿词元只有 {share} 被接受：请关闭草稿。",
    ),
    "lever.drafts_none": (
        "Answers that repeat their prompt are faster with draft tokens (8, in a card's “more”).",
        "若回答会重复提示中的内容，可使用草稿词元（卡片“更多”中设为 8）加速。",
    ),
    # the run before
    "change.ttft": ("first token: {before} → {now} ms", "首词元：{before} → {now} ms"),
    "change.tpot": ("later tokens: {before} → {now} ms each", "后续词元：每个 {before} → {now} ms"),
    "change.prompt_tokens": ("prompt tokens: {before} → {now}", "提示词元：{before} → {now}"),
    "change.cached": ("of them from the prefix cache: {before} → {now}", "其中来自前缀缓存：{before} → {now}"),
    "change.batch": ("questions in a decode step: {before} → {now}", "每个解码步骤的问题数：{before} → {now}"),
    "change.kv_peak": ("KV memory at its peak: {before} → {now}", "KV 内存峰值：{before} → {now}"),
    "change.model": ("the model, its tokenizer or its chat template is another one", "模型、分词器或对话模板已更换"),
}
