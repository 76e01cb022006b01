"""What a wrong value should be instead, in Chinese: the engine's English half-sentences by pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping

from app.i18n import model_errors

# English, with {} for whatever stands there -> Chinese, with {} in the same order. Of those that fit, the one that says
# most is taken.
CHINESE: Mapping[str, str] = {
    "it must be a whole number of at least {}": "应为不小于 {} 的整数",
    "it must be a whole number": "应为整数",
    "it must be a number": "应为数",
    "it must be a finite number": "应为有限的数",
    "it must be true or false": "应为 true 或 false",
    "it must be a text": "应为文本",
    "it must be text": "应为文本",
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
    # a card, a file of questions
    "it must hold some text": "不能为空",
    "it must hold some text, without spaces around it": "不能为空，前后也不能有空格",
    "no shared context has this name; there are: {}": "没有这个名称的共享上下文；现有：{}",
    "two shared contexts have this name; rename one": "有两个共享上下文同名；请改名",
    "a question has this letter; give the context another name": "已有问题使用这个字母；请给上下文换个名称",
    "this shared context is empty; write something into it": "这个共享上下文是空的；请写入内容",
    "no shared context of that name came with it": "没有随之给出这个名称的共享上下文",
    "a shared context must hold some text": "共享上下文不能为空",
    "the run's shared contexts are: {}": "这次运行的共享上下文有：{}",
    "a run has at least one question": "一次运行至少要有一个问题",
    "it appears twice; each must be its own": "它出现了两次；每个都应不同",
    "it must be a JSON object": "应为 JSON 对象",
    "a card holds a question in words": "卡片里应是用文字写的问题",
    "it holds no question": "其中没有问题",
    "a question has no such key; known: {}": "问题没有这样的键；可用：{}",
    "it must hold a list of questions, or an object with questions": "应包含问题列表，或带 questions 的对象",
    "the header must name the columns, each once, and one of them question":
        "表头应列出各列，每列一次，其中一列为 question",
    "it must be an object of name: text": "应为“名称: 文本”的对象",
    "it must be text, or {\"text\": text, \"system\": text or null}":
        "应为文本，或 {{\"text\": 文本, \"system\": 文本或 null}}",
    "a list in a cell is written as JSON": "单元格里的列表应写成 JSON",
    "it is not JSON: {}": "不是 JSON：{}",
    "it is not CSV: {}": "不是 CSV：{}",
    "it is nested too deeply": "嵌套过深",
    "it must be a .json, .jsonl or .csv file": "应为 .json、.jsonl 或 .csv 文件",
    "it has {} cells and the header {}": "它有 {} 个单元格，而表头有 {} 个",
    "give exactly one of question, messages and prompt_token_ids":
        "question、messages 和 prompt_token_ids 要给且只给一个",
    "a chat has at least one message": "对话至少要有一条消息",
    "a prompt has at least one token": "提示至少要有一个词元",
    "it cannot be combined with {}": "不能与 {} 同时使用",
    "it belongs to the shared context {}; set it there": "它属于共享上下文 {}；请在那里设置",
    "a stop string holds at least one character": "停止文本至少要有一个字符",
    "each question must be a JSON object": "每个问题应为 JSON 对象",
    "each question needs a text id": "每个问题都需要文本 id",
    "it must be {\"role\": text, \"content\": text}": "应为 {{\"role\": 文本, \"content\": 文本}}",
    "it must name each of {} once": "应各包含一次：{}",
    "it cannot be enforced: {}": "无法强制执行：{}",
    "give one or more texts, none empty": "请给出一个或多个非空文本",
    "it must hold at least one character": "至少要有一个字符",
    "the model has no chat template; put the text into the context": "这个模型没有聊天模板；请把文本放进上下文",
    "the model has no chat template; ask with question": "这个模型没有聊天模板；请用 question 提问",
    "the model's chat template rewrites it; put it into each question's context":
        "模型的聊天模板会改写它；请放进每个问题的上下文",
    "the model's chat template has no place for it": "模型的聊天模板里没有它的位置",
    "the model's chat template refuses it: {}": "模型的聊天模板拒绝了它：{}",
    "it holds a control token and the model's chat template rewrites it; remove the token":
        "它含有控制词元，模型的聊天模板会改写它；请去掉该词元",
    "it holds a control token that this tokenizer cannot keep as text; remove it":
        "它含有这个分词器无法当作文本的控制词元；请去掉",
    "it holds half of a surrogate pair, which is no character; remove it": "它含有半个代理对，不是字符；请去掉",
    "the model knows the ids 0 to {}": "模型认识的编号是 0 到 {}",
    # the planner
    "it could not be planned; the log says why": "无法计算；原因见日志",
    "this public page takes embedded, hf:owner/name and modelscope:owner/name":
        "这个公开页面只接受 embedded、hf:owner/name 和 modelscope:owner/name",
    "at most {} characters are read": "最多读取 {} 个字符",
    "at most {} entries are read": "最多读取 {} 项",
    "at most {} are read": "最多读取 {}",
    "at most {} are allowed": "最多允许 {} 个",
    "name a model, or paste its config.json": "请写模型名，或粘贴它的 config.json",
    "write a size with its unit, as in 80 GB or 80 GiB": "应为带单位的大小，如 80 GB 或 80 GiB",
    "write a size above 0 and at most 1 EiB": "应为大于 0 且不超过 1 EiB 的大小",
    "write a number, as in 7e9 or 70B, or nothing": "应为如 7e9 或 70B 的数，或留空",
    "it must be a number above 0 and at most 100": "应为大于 0 且不大于 100 的数",
    "it must be a whole number of 1 or more": "应为不小于 1 的整数",
    "it must be a whole number from 1 to {}": "应为 1 到 {} 的整数",
    "it must be above 0 and at most 1": "应大于 0 且不大于 1",
    "it must be at least {}": "应不小于 {}",
    "it must be an object, as in a config.json": "应为 config.json 那样的对象",
    "it must be JSON that is not nested hundreds of levels deep": "应为 JSON，且不能嵌套数百层",
    "it must be JSON ({})": "应为 JSON（{}）",
    "it must divide the {} attention heads": "应能整除注意力头数 {}",
    "it must name each of the {} layers": "应列出 {} 层中的每一层",
    "without head_dim it must be a multiple of the {} heads": "没有 head_dim 时应为头数 {} 的倍数",
    "the configuration must give it": "配置里应有它",
    "transformers cannot read it as such a configuration ({}); correct that key":
        "transformers 无法按这种配置读取它（{}）；请改正那个键",
    "a GGUF file has no config.json; name the model it was made from": "GGUF 文件没有 config.json；请写它的原模型",
    "a GGUF file is named gguf:{}": "GGUF 文件应写作 gguf:{}",
    "a repository on a hub is named {}:owner/name, or with @revision behind it":
        "仓库应写作 {}:owner/name，后面可加 @revision",
    # a run of the history
    "it must be the JSON of the page's cards": "应为页面卡片的 JSON",
    "each card has its own letter of {} to {}": "每张卡片应有自己的字母，从 {} 到 {}",
    "it must be a list of cards": "应为卡片列表",
    "{} must be text": "{} 应为文本",
    "it must be the JSON that the history exports, with format \"{}\"": "应为历史导出的 JSON，format 为 \"{}\"",
    "it must be the JSON that the history exports": "应为历史导出的 JSON",
    "this workbench reads version {}": "这个工作台读取版本 {}",
    "it must hold at least one card": "至少应有一张卡片",
    "it must be an object": "应为对象",
    "its values must be text": "它的值应为文本",
    "it must be a list of objects": "应为对象列表",
    "it must be a time in ISO form": "应为 ISO 格式的时间",
    "each needs a name, a length, a prompt and a parent": "每个都需要名称、长度、提示和父段",
    "each has its {}, as the command line prints it": "每个都应有命令行打印的 {}",
    # adapters and settings of the engine
    "another adapter has it; choose a free name or unload that one": "另一个适配器已用此名；请换名，或先卸载那一个",
    "the pool holds {} at a time": "池中同时最多 {} 个",
    "no loaded adapter has this id": "没有加载过这个编号的适配器",
    "no CUDA device is here; use auto or cpu": "这里没有 CUDA 设备；请用 auto 或 cpu",
    "it must be auto, cpu or cuda": "应为 auto、cpu 或 cuda",
    "with dtype {} it must be one of {}": "数据类型为 {} 时应为其中之一：{}",
    "backend {} reads pages of a multiple of {}; leave it open or name another backend":
        "后端 {} 的页大小须为 {} 的倍数；请不指定，或换一个后端",
    "they cannot be used: {}; leave it at auto": "无法使用（{}）；请保持 auto",
    "its name must end in one of {}, .json": "文件名应以其中之一结尾：{}、.json",
    "send the values themselves; no file of this machine is read": "请直接给出值；不读取这台机器上的文件",
    "this batch does not say who reads whom": "这个批次没有说明谁能读谁",
    # no token could be drawn
    "the model's logits are not finite, so no token can be drawn": "模型的 logits 不是有限的数，无法抽取词元",
    "no token that the structured output allows has a finite logit, so none can be drawn":
        "结构化输出允许的词元都没有有限的 logit，无法抽取",
    "the log-probability of prompt token {} is {}, so the prompt cannot be scored":
        "提示词元 {} 的对数概率是 {}，因此无法给提示打分",
    # what a kept run says of a question
    "question {}: {}": "问题 {}：{}",
    "{} needs {} tokens (prompt and new tokens) but {} holds {}; {}.":
        "{} 需要 {} 个词元（提示加生成），但{}只容 {} 个；{}。",
    "the model's context": "模型的上下文",
    "the KV budget": "KV 预算",
    "shorten the context or ask for fewer new tokens": "请缩短上下文或少生成一些",
    "shorten the context, ask for fewer new tokens or raise the KV budget": "请缩短上下文、少生成一些，或提高 KV 预算",
    "adapter {} is not loaded; did you mean {}? Loaded: {}.": "适配器 {} 没有加载；是不是 {}？已加载：{}。",
    "adapter {} is not loaded; Loaded: {}.": "适配器 {} 没有加载；已加载：{}。",
    "{} is {}, but {}.": "{} 的值是 {}，不能使用（{}）。",
    # where in a file
    "the file": "文件",
    "the row": "该行",
    "the line": "该行",
    "the header": "文件头",
    "its name": "文件名",
    "line {}, column {}": "第 {} 行第 {} 列",
    "line {}": "第 {} 行",
    # the words of a type
    "text": "文本",
    "a JSON object": "JSON 对象",
    "true or false": "true 或 false",
    "a list": "列表",
    "it must be {}": "应为{}",
}
_PATTERNS = tuple((re.compile("(.*?)".join(map(re.escape, english.split("{}"))), re.DOTALL), chinese)
                  for english, chinese in sorted({**model_errors.CHINESE, **CHINESE}.items(),
                                                 key=lambda pair: -len(pair[0].replace("{}", ""))))


def in_chinese(way_out: str) -> str:
    """The sentence or half-sentence in Chinese, those within it too; one that is not known stays as it is."""
    for pattern, chinese in _PATTERNS:
        if found := pattern.fullmatch(way_out):
            return chinese.format(*(in_chinese(part) for part in found.groups()))
    half = way_out.removesuffix(".")
    return way_out if half == way_out or (chinese := in_chinese(half)) == half else f"{chinese}。"
