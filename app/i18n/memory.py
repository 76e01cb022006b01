"""The words of the memory tab."""

from __future__ import annotations

from collections.abc import Mapping

# key: (English, Chinese)
WORDS: Mapping[str, tuple[str, str]] = {
    "tab.memory": ("Memory", "内存"),
    # the form
    "memory.model": ("Model", "模型"),
    "memory.model_hint": ("hf:owner/name, modelscope:owner/name, a folder, embedded",
                          "hf:owner/name、modelscope:owner/name、文件夹或 embedded"),
    "memory.config": ("or paste a config.json", "或粘贴 config.json"),
    "memory.config_hint": ("the whole file; it counts before the name", "整个文件；优先于模型名"),
    "memory.weight_dtype": ("Weights in", "权重精度"),
    "memory.kv_dtype": ("Keys and values in", "KV 精度"),
    "memory.device": ("Device memory", "设备内存"),
    "memory.usable": ("usable, %", "可用比例 %"),
    "memory.context": ("Tokens a question", "每题词元数"),
    "memory.concurrency": ("Questions at once", "同时的问题数"),
    "memory.parameters": ("Parameters", "参数量"),
    "memory.parameters_hint": ("counted", "自动统计"),
    "memory.plan": ("Plan", "计算"),
    "memory.csv": ("CSV", "CSV"),
    "memory.json": ("JSON", "JSON"),
    "memory.try": ("Try", "示例"),
    "memory.example.loaded": ("the loaded model", "已加载的模型"),
    "memory.example.gqa": ("70B, 8 KV heads", "70B，8 个 KV 头"),
    "memory.example.mha": ("the same with 64", "同样，64 个 KV 头"),
    "memory.example.seven": ("7B, nothing shared", "7B，不共享"),
    "memory.example.window": ("sliding windows", "滑动窗口"),
    "memory.example.mla": ("latent attention", "潜在注意力"),
    "memory.empty": ("Name a model or paste its config.json, then press Plan: no weights are fetched.",
                     "填写模型名或粘贴 config.json，再点“计算”；不会下载权重。"),
    "memory.working": ("Reading the configuration…", "正在读取配置…"),
    # the result
    "memory.a_token": ("{size} a token", "每词元 {size}"),
    "memory.formula": ("2 (key and value) × layers × KV heads × head_dim × bytes of a number",
                       "2（键和值）× 层数 × KV 头数 × 头维度 × 每个数的字节数"),
    "memory.row.weights": ("Weights", "权重"),
    "memory.weights": ("{parameters} parameters × {bits} bits = {size}", "{parameters} 个参数 × {bits} 位 = {size}"),
    "memory.weights_unknown": ("not known; write the number of parameters into its field",
                               "未知；请在“参数量”中填写"),
    "memory.row.kv": ("Keys and values", "键和值"),
    "memory.kv": ("{concurrency} × {context} {context|token|tokens} = {size}",
                  "{concurrency} × {context} 个词元 = {size}"),
    "memory.row.kv_whole": ("without windows", "不用窗口"),
    "memory.kv_whole": ("{size}, as in this workbench, whose cache keeps the whole story",
                        "{size}；本工作台的缓存保留全部内容，即按此计算"),
    "memory.row.total": ("Together", "合计"),
    "memory.row.device": ("Device", "设备"),
    "memory.device_size": ("{size}, of which {percent} % = {usable} may be taken",
                           "{size}，其中 {percent}% 即 {usable} 可用"),
    "memory.fits": ("fits, {size} are left", "放得下，还剩 {size}"),
    "memory.fits_not": ("does not fit, {size} are missing", "放不下，还差 {size}"),
    "memory.row.batch": ("Largest batch", "最大批量"),
    "memory.batch": ("{count} at {context} {context|token|tokens} each", "{count} 个问题，每题 {context} 个词元"),
    "memory.row.longest": ("Longest context", "最长上下文"),
    "memory.longest": ("{context} {context|token|tokens} for each of {concurrency}",
                       "{concurrency} 个问题，每题 {context} 个词元"),
    "memory.row.gqa": ("Shared KV heads", "共享 KV 头"),
    "memory.gqa": ("{factor} × less: with one for each of the {heads} query {heads|head|heads} it would be {size}",
                   "省到 1/{factor}：若 {heads} 个查询头各有一个，则需 {size}"),
    "memory.gqa_none": ("nothing is shared: every query head has keys and values of its own",
                        "没有共享：每个查询头都有自己的键和值"),
    "memory.row.mask": ("Mask of the packed row", "打包行的掩码"),
    "memory.mask": ("{tokens} {tokens|token|tokens}: {dense} as booleans, {additive} to add in {dtype}; cu_seqlens: "
                    "{boundaries}",
                    "{tokens} 个词元：布尔矩阵 {dense}，{dtype} 加性矩阵 {additive}；cu_seqlens：{boundaries}"),
    "memory.row.layers": ("Layers", "各层"),
    "memory.layer": ("{count} × {kv_heads} KV {kv_heads|head|heads} × {size} ({heads} query {heads|head|heads}): "
                     "{bytes} a token",
                     "{count} 层 × {kv_heads} 个 KV 头 × {size}（{heads} 个查询头）：每词元 {bytes}"),
    "memory.layer_window": (
        "{count} × {kv_heads} KV {kv_heads|head|heads} × {size} ({heads} query {heads|head|heads}), window {window}: "
        "{bytes} a token",
        "{count} 层 × {kv_heads} 个 KV 头 × {size}（{heads} 个查询头），窗口 {window}：每词元 {bytes}"),
    "memory.layer_reuses": ("{count} that read the keys of an earlier layer and store none",
                            "{count} 层读取前面层的键，自己不存"),
    "memory.table": ("Weights and keys and values together, in GiB (1 GiB = 1.074 GB)",
                     "权重与键值合计，单位 GiB（1 GiB = 1.074 GB）"),
    "memory.table_kv": ("Keys and values, in GiB (1 GiB = 1.074 GB)", "键和值，单位 GiB（1 GiB = 1.074 GB）"),
    "memory.column.context": ("tokens a question", "每题词元数"),
    "memory.column.batch": ("most questions", "最多问题数"),
    "memory.too_much": ("does not fit", "放不下"),
    # the plot
    "memory.plot.title": ("Memory against context, one line for each number of questions",
                          "内存随上下文变化，每条线对应一种问题数"),
    "memory.plot.x": ("tokens a question", "每题词元数"),
    "memory.plot.y": ("GiB", "GiB"),
    "memory.plot.questions": ("{count} {count|question|questions}", "{count} 个问题"),
    "memory.plot.device": ("usable", "可用"),
    "memory.plot.weights": ("weights", "权重"),
    # notes
    "memory.note.unknown_type": ("transformers does not know the type “{model_type}”: the usual names were read, and "
                                 "the parameters are not counted.",
                                 "transformers 不认识类型“{model_type}”：按通用键名读取，参数量未统计。"),
    "memory.note.text_part": ("The model is multimodal; this is its text part.", "这是多模态模型；此处只算文本部分。"),
    "memory.note.parameters": ("The parameters could not be counted ({reason}).", "无法统计参数量（{reason}）。"),
    "memory.note.quantized": ("The weights are published quantised ({method}); scales are not counted.",
                              "权重以量化形式发布（{method}）；未计缩放系数。"),
    "memory.note.not_packable": ("This workbench cannot run it: {reason}", "本工作台不能运行它：{reason}"),
    # mistakes
    "field.device": ("Device memory", "设备内存"),
    "field.usable": ("The usable share", "可用比例"),
    "field.context_tokens": ("Tokens a question", "每题词元数"),
    "field.concurrency": ("Questions at once", "同时的问题数"),
    "field.parameters": ("The number of parameters", "参数量"),
    "way.device": ("a size with its unit, as in 80 GB or 80 GiB", "带单位的大小，如 80 GB 或 80 GiB"),
    "way.usable": ("a number above 0 and at most 100", "大于 0 且不大于 100 的数"),
    "way.context_tokens": ("a whole number of 1 or more, as in 8192 or 8k", "不小于 1 的整数，如 8192 或 8k"),
    "way.concurrency": ("a whole number of 1 or more", "不小于 1 的整数"),
    "way.parameters": ("a number as in 7e9 or 70B, or empty to have them counted",
                       "如 7e9 或 70B 的数，留空则自动统计"),
    "error.footprint_refused.mla": (
        "The memory of this model cannot be planned: it uses multi-head latent attention (kv_lora_rank {rank}), which "
        "stores one compressed vector a token and layer, not keys and values by head.",
        "无法为这个模型计算：它使用多头潜在注意力（kv_lora_rank {rank}），"
        "每层每词元只存一个压缩向量，而不是按头存键和值。"),
    "error.footprint_refused.state": (
        "The memory of this model cannot be planned: its layers of type {kinds} keep a state, not keys and values a "
        "token.", "无法为这个模型计算：类型为 {kinds} 的层保存的是状态，而不是每词元的键和值。"),
    "error.footprint_refused.disagrees": (
        "The memory of this model cannot be planned: layer {layer} gives {read} numbers a token by its configuration "
        "and {built} by its code.",
        "无法为这个模型计算：第 {layer} 层按配置每词元为 {read} 个数，按代码为 {built} 个。"),
    "error.footprint_refused.encoder_decoder": (
        "The memory of this model cannot be planned: it is an encoder-decoder, which also keeps its encoder's output.",
        "无法为这个模型计算：它是编码器-解码器，还要保存编码器的输出。"),
    "error.footprint_refused.no_decoder": (
        "The memory of this model cannot be planned: it is no causal language model, so no keys and values are kept.",
        "无法为这个模型计算：它不是因果语言模型，不保存键和值。"),
}
