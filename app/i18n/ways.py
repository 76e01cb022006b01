"""What a wrong value of a batch should be instead, in Chinese: the engine's English half-sentences by pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping

# English, with {} for whatever stands there -> Chinese, with {} in the same order. The first that fits is taken.
CHINESE: Mapping[str, str] = {
    "it must be a whole number of at least {}": "应为不小于 {} 的整数",
    "it must be a whole number": "应为整数",
    "it must be a number": "应为数",
    "it must be a finite number": "应为有限的数",
    "it must be true or false": "应为 true 或 false",
    "it must be a text": "应为文本",
    "it must be one of {}": "应为其中之一：{}",
    "it must be a list of {} entries": "应为有 {} 项的列表",
    "it must be a list such as [[0, 5], [5, 9]]": "应为类似 [[0, 5], [5, 9]] 的列表",
    "it must be a list": "应为列表",
    "it must be an object with named entries": "应为带名字的对象",
    "its names must be texts": "其中的名字应为文本",
    "it must have {} axes": "应有 {} 个轴",
    "it must have one to four axes": "应有一到四个轴",
    "it must have one to four axes, none of them empty": "应有一到四个轴，且都不为空",
    "it must not be empty": "不能为空",
    "it must hold whole numbers": "应包含整数",
    "it must be one list of whole numbers": "应为一个整数列表",
    "all rows must have the shape {}": "所有行的形状都应为 {}",
    "it must hold numbers or booleans": "应包含数或布尔值",
    "it must hold at least one mask": "至少应包含一个掩码",
    "it must hold at least one token": "至少应包含一个词元",
    "it must hold at least two entries, the first 0 and the last T": "至少应有两项，第一项是 0，最后一项是 T",
    "cu_seqlens_q and cu_seqlens_k belong together; give both, or cu_seqlens":
        "cu_seqlens_q 与 cu_seqlens_k 要一起给出；请两个都给，或者给 cu_seqlens",
    "kv_len needs q_len beside it": "kv_len 需要同时给出 q_len",
    "it must have one entry for each of the {} segments": "{} 个段各应有一项",
    "at most {} tokens can be judged": "最多能判断 {} 个词元",
    "the end must not lie before the start": "终点不能在起点之前",
    "it must be a dtype as torch names it: {}": "应为 torch 的类型名：{}",
    "no such key is known; did you mean {}?": "没有这样的键；是不是 {}？",
    "no such key is known": "没有这样的键",
    "it does not agree with lengths; give one of the two": "它与 lengths 不一致；请只给其中一个",
    "there are only {} segments": "一共只有 {} 个段",
    "a parent must lie earlier in the row than its child": "父段在行中必须位于子段之前",
    "a parent must be an earlier segment of the row, or null": "父段必须是行中更早的段，或为 null",
    "a segment has at least 0 tokens": "一段至少有 0 个词元",
    "segment {} goes on to {}; segments must not overlap": "段 {} 一直延续到 {}；段之间不能重叠",
    "it must be bytes in hexadecimal, as e7a4be": "应为十六进制字节，例如 e7a4be",
    "it holds {} arrays, so \"key\" must name one of them": "它有 {} 个数组，需要用 \"key\" 指明其中一个",
    "the file holds {}": "文件里有 {}",
    "a mask holds numbers, true, false, \"-inf\" or \"nan\"": "掩码只能包含数、true、false、\"-inf\" 或 \"nan\"",
    "it must be a nested list, an array, {} or a shorthand": "应为嵌套列表、数组、{} 或简写",
    "a list of {} entries belongs here, as in the other rows": "这里应是有 {} 项的列表，与其他行一样",
    "beside \"file\" only \"key\" may stand": "\"file\" 旁边只能有 \"key\"",
    "a shorthand is one of ones, zeros, tril, block_causal, file":
        "简写是 ones、zeros、tril、block_causal、file 之一",
    "\"as\", \"sentinel\" and \"flip\" belong to tril and block_causal":
        "\"as\"、\"sentinel\" 和 \"flip\" 只用于 tril 和 block_causal",
    "an additive shorthand needs the fill value": "相加的简写需要填充值",
    "the mask has {} queries and keys": "掩码有 {} 个查询和键",
    "there must be at least one piece, and each must hold some text": "至少要有一段文本，而且每段都不能为空",
    "there must be one interval for each of the {} pieces": "{} 段文本各应有一个区间",
    "this tokenizer makes no token of them": "这个分词器没有从中得到任何词元",
    "this tokenizer has no chat template": "这个分词器没有聊天模板",
    "it must hold {} once, or be empty, or {}": "应正好包含一次 {}，或留空，或为 {}",
    "the chat template refuses the piece: {}": "聊天模板拒绝了这段文本：{}",
    "one on the hub is named hf:owner/name, or with @revision behind it":
        "Hub 上的分词器写作 hf:owner/name，也可以在后面加 @revision",
    "it must be a folder, or hf:owner/name": "应为文件夹，或 hf:owner/name",
    "its name must end in one of {}": "文件名应以其中之一结尾：{}",
    "each entry must be [start, end] with 0 <= start <= end": "每一项应为 [起点, 终点]，且 0 <= 起点 <= 终点",
    "it must end in one of {}, or be JSON": "文件名应以其中之一结尾：{}，或为 JSON",
    "it does not exist": "它不存在",
    "it is not an .npz archive": "它不是 .npz 归档",
    "it is not a safetensors file": "它不是 safetensors 文件",
    "it cannot be read as {} ({})": "无法按 {} 读取（{}）",
    "close other programs, or choose a smaller model or a smaller dtype": "请关闭其他程序，或选择更小的模型或数据类型",
    "raise the KV budget (--kv-budget)": "请提高 KV 预算（--kv-budget）",
    "name embedded, a folder, hf:owner/name, modelscope:owner/name or gguf:path":
        "应为 embedded、文件夹、hf:owner/name、modelscope:owner/name 或 gguf:path",
    "free some disk space or set KEV_HOME to a folder on another disk":
        "请腾出磁盘空间，或把 KEV_HOME 设到另一块磁盘上的文件夹",
    "it must hold one tensor or a dictionary of named tensors": "应包含一个张量，或带名字的张量的字典",
}
_PATTERNS = tuple((re.compile("(.*)".join(map(re.escape, english.split("{}"))), re.DOTALL), chinese)
                  for english, chinese in CHINESE.items())


def in_chinese(way_out: str) -> str:
    """The half-sentence in Chinese; one that is not known stays as it is."""
    for pattern, chinese in _PATTERNS:
        if found := pattern.fullmatch(way_out):
            return chinese.format(*found.groups())
    return way_out
