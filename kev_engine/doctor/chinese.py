"""The words for findings in Chinese: the same keys as `english.py`, filled with the same facts."""

from __future__ import annotations

from collections.abc import Mapping

# key: (message, repair)
CHINESE: Mapping[str, tuple[str, str]] = {
    # who reads whom
    "CROSS_SEGMENT_LEAK": (
        "有 {count} 个格子让查询读到了别的段（涉及{some} {num_pairs} 对段）：第一个是段 {reader} 的查询 {query}"
        " 读到段 {read} 的键 {key}；使用方听从 {source}。",
        "请用使用方会听从的形式给出边界：布尔块掩码、cu_seqlens，或者（在它会读位置的地方）重新从头计数的"
        "位置而不带掩码。"),
    "CROSS_SEGMENT_LEAK.shifted": (
        "{source} 的边界在 {found_borders}，正确的是 {borders}：有 {count} 个格子让查询读到了别的段，第一"
        "个是段 {reader} 的查询 {query} 读到段 {read} 的键 {key}。",
        "把边界移到 {borders}；常见原因是 BOS 或模板的词元没有数进去。"),
    "CROSS_SEGMENT_LEAK.outside": (
        "有 {count} 个格子让查询读到了不属于任何段的词元：第一个是段 {reader} 的查询 {query} 读到键 {key}"
        "；使用方听从 {source}。",
        "把不属于任何段的词元遮住。"),
    "LEAK_FUTURE": (
        "有 {count} 个格子让查询读到了本段中更靠后的键：第一个是查询 {query} 读到键 {key}；使用方听从 {source}"
        "。",
        "遮住所有位于查询之后的键。"),
    "HIDDEN_KEYS": (
        "有 {count} 个本该可读的格子被遮住了：第一个是查询 {query} 读不到键 {key}；使用方听从 {source}。",
        "打开这些格子：查询应能读到本段和祖先段中直到它自己为止的键。"),
    "ROW_EMPTY": (
        "有 {num_indexes} 行查询什么都读不到（第一行：查询 {query}）；用 −inf 填充时这一行变成 NaN，用有限"
        "值填充时变成所有键的平均。",
        "让每一行至少能读到自己，或者声明这些行是填充。"),
    "ROW_EMPTY.padding": (
        "有 {num_indexes} 行填充什么都读不到（第一行：查询 {query}）；只要没有人用它们的输出，而且填充值是"
        "有限的，就无害。",
        ""),
    "ROW_EMPTY.kernel": (
        "有 {num_indexes} 个查询位于右下对齐的内核的第一个键之前（第一个：查询 {query}）；内核按设计为它们"
        "写 0。",
        ""),
    "FORBIDDEN_CELL": (
        "禁止的矩形里有 {count} 个格子可以读到：第一个是查询 {query} 读到键 {key}。",
        "遮住这些格子；检查区间的终点是否被当成了包含在内。"),
    "MASK_INVERTED": (
        "掩码与 {consumer} 的约定（{reads}）正好相反：该读的被遮住，该遮的能读到。",
        "取反一次：布尔值用 `~mask`，或者按另一种约定重新构造。"),
    "MASK_INVERTED.padding": ("掩码把填充标成 1、把词元标成 0，与保留掩码正好相反。", "请用 {expected}。"),
    "CAUSAL_MISSING": (
        "需要因果性，却没有任何东西遮住后面的键：有 {count} 个格子不该打开。",
        "传入 is_causal=True，或把因果三角写进掩码。"),
    "CAUSAL_MISSING.eager": (
        "需要因果性，但这个注意力没有拿到掩码，也没有开关会加上它：后面的键有 {count} 个可以读到。",
        "构造因果掩码并加到分数上。"),
    "CAUSAL_UNWANTED": (
        "模型本应双向阅读，但后面的键有 {count} 个格子被遮住（来源：{source}）。",
        "不要因果性：is_causal=False，掩码里也不要三角。"),
    "CAUSAL_AND_MASK": (
        "{consumer} 同时拿到了掩码和 is_causal=True；它会拒绝这种组合，或者把因果性用两次。",
        "二者只给一个：把因果三角写进掩码，或者不给掩码。"),
    "ALIGN_TOP_LEFT": (
        "{queries} 个查询对 {keys} 个键按左上角对齐，好像没有缓存一样：与正确的集合相差 {count} 个格子。",
        "改为右下对齐：第 i 个查询位于键 {keys} − {queries} + i；请给出明确的掩码，或使用这样对齐的版本。"),
    "WINDOW_IGNORED": (
        "掩码里没有长度为 {window} 的滑动窗口：有 {count} 个格子读得太远，第一个是查询 {query} 读键 {key}"
        "。",
        "遮住位于查询之前 {window} 个位置或更远的键。"),
    "WINDOW_IGNORED.partly": (
        "有 {count} 个格子读到了滑动窗口 {window} 之外：第一个是查询 {query} 读到键 {key}。",
        "遮住位于查询之前 {window} 个位置或更远的键。"),
    "WINDOW_OFF_BY_ONE": (
        "掩码的窗口是 {width}，模型的是 {window}：相差 {count} 个格子，第一个是查询 {query} 与键 {key}。",
        "窗口 {window} 指查询自己和它之前的 {window} − 1 个键。"),
    # the mask as an array
    "MASK_VALUES_AS_BIAS": (
        "掩码是 {dtype} 的 0 和 1，而 {consumer} 会把它加到分数上：被遮的键只少 1 分，什么也没有遮住。",
        "请转换：接受布尔值的地方用 `mask.bool()`，否则允许处为 0，不允许处为 torch.finfo(dtype).min。"),
    "MASK_VALUES_AS_BIAS.bool": (
        "掩码是布尔值，而 transformers 在 attn_implementation={way} 时把 4 维掩码原样相加：true 变成 +1，"
        "什么也没有遮住。",
        "请转换：允许处为 0，不允许处为 torch.finfo(dtype).min；或者改用 sdpa。"),
    "MASK_DTYPE": ("掩码的类型是 {found}，{consumer} 不接受。", "请转换：mask.to(torch.{expected})。"),
    "MASK_DTYPE.float": (
        "掩码的类型是 {found}，查询是 {expected}；{consumer} 的融合内核不接受这种组合。",
        "请转换：mask.to(torch.{expected})，或使用布尔掩码。"),
    "MASK_SHAPE": ("掩码的形状是 {found}，而 {consumer} 需要 {expected}。", "请改成 {expected}。"),
    "MASK_SHAPE.planes": ("这些掩码的形状是 {found}，不能互相广播。", "请统一成一个形状。"),
    "MASK_NAN": ("掩码中有 {count} 个格子是 NaN，每个都会毁掉整行。", "用 where() 构造掩码；0 × −inf 等于 NaN。"),
    "MASK_OVERFLOW": (
        "把 {num_planes} 个掩码相加时，有 {count} 个格子在 {dtype} 中变成无穷；整行都是无穷时结果为 NaN。",
        "先按布尔值合并再填充一次，或把和限制在 torch.finfo(dtype).min。"),
    "MASK_SENTINEL_UNREPRESENTABLE": (
        "填充值 {found:g} 超出 {dtype} 的范围（最大 {largest:g}），会变成 −inf。",
        "使用 torch.finfo(dtype).min，或布尔掩码。"),
    "MASK_SENTINEL_WEAK": (
        "填充值 {found:g} 太小，被遮的键仍有权重（高于 {limit:g}）。",
        "使用 torch.finfo(dtype).min，或布尔掩码。"),
    "MASK_TOO_LARGE": (
        "形状为 {shape} 的掩码有 {found} 个格子；32 位偏移到 {expected} 为止。",
        "改为描述段：cu_seqlens，或即时计算的块掩码。"),
    "SIZE_OVERFLOW": (
        "{total} 个词元 × 每个 {width} 个数等于 {found} 个值；32 位偏移到 {expected} 为止。",
        "使用 64 位偏移，或拆开这一行。"),
    "SEGMENT_ID_MASK": (
        "掩码里有到 {highest} 为止的数，看起来是段号；普通的使用方把 0 以外的数都当成“保留”，会把整行当"
        "作一段。",
        "换用认识段号的使用方，或者给出位置、cu_seqlens 或块掩码。"),
    "SEGMENT_ID_MASK.flash": (
        "掩码里有到 {highest} 为止的数，看起来是段号；flash attention 用掩码求和来得到长度，普通代码会数出"
        "过多的词元。",
        "使用认识段号的 unpad 步骤，或者给出重新计数的位置而不带掩码。"),
    # sources and backends
    "BOUNDARY_CONFLICT.cu": (
        "{one} 与 {other} 描述的段不同（相差 {cells} 个格子）；被听从的是 {obeyed}。",
        "让两者的边界一致，或去掉错的那个。"),
    "BOUNDARY_CONFLICT.positions": (
        "{one} 描述了 {segments} 段，{other} 只有一段（相差 {cells} 个格子）；被听从的是 {obeyed}。",
        "去掉全 1 掩码，让重新计数的位置起作用；或者给出块掩码。"),
    "BOUNDARY_CONFLICT.numbers": (
        "{one} 中的段号与 {other} 的边界位置不同（第一处：{place}）；被听从的是 {obeyed}。",
        "让两者的边界一致。"),
    "BOUNDARY_CONFLICT.eos": (
        "按 {one}，词元 {place} 是一段的开头，但它是前一段文本结尾的 EOS；被听从的是 {obeyed}。",
        "把这些边界后移一个词元，让每个 EOS 属于它结束的文本。"),
    "BOUNDARY_CONFLICT.inner": (
        "段 {segment} 之内，词元 {place} 处位置 {value} 接在 {before} 之后：从位置推导段的使用方会在这里切"
        "开。",
        "段内的位置应逐一加 1。"),
    "BACKEND_IGNORES_MASK": (
        "{backend} 不看掩码：它想遮住的（{kind}）仍然可读；起作用的只有 cu_seqlens 和因果性。",
        "用 cu_seqlens 说明边界，或使用接受掩码的后端。"),
    "BACKEND_NO_ARBITRARY_MASK": (
        "{backend} 不能执行任意的格子掩码；它只认识整段序列的因果块。",
        "使用 sdpa 或 flex_attention，或用 cu_seqlens、重新计数的位置说明边界。"),
    "BACKEND_DTYPE": (
        "flash attention 只在 GPU 上以 float16 或 bfloat16 计算；这个批次是 {dtype}。",
        "在 GPU 上把模型转成 bfloat16，或使用 sdpa。"),
    "BACKEND_DTYPE.device": ("flash attention 只在 GPU 上运行；这个批次在 {device} 上。", "这里请用 sdpa。"),
    "NOT_PACKABLE": (
        "有 {num_layers} 层是 {kind}，它们沿着行传递状态，不看掩码：段会通过它们互相泄漏。",
        "每行只放一段，或使用在 cu_seqlens 处重置状态的内核。"),
    # positions
    "POS_NOT_RESET": (
        "段 {segment} 从词元 {first} 开始，位置是 {value}，正确的是 {right}。",
        "每段都重新计数：{expected}。"),
    "POS_NOT_RESET.harmless": (
        "段 {segment} 从词元 {first} 开始，位置是 {value}，通常应为 {right}；在正确的掩码下用 RoPE 是无害"
        "的，因为只有距离起作用，直到位置超过上下文上限。",
        "重新计数可以远离上下文上限：{expected}。"),
    "POS_NOT_RESET.depends": (
        "段 {segment} 从词元 {first} 开始，位置是 {value}，正确的是 {right}；在这个掩码下，RoPE（position_"
        "kind）是无害的，绝对位置则不是。",
        "每段都重新计数：{expected}。"),
    "POS_START": ("位置从 {first} 开始，正确的是 {right}。", "请用 {expected}。"),
    "POS_START.decode": (
        "第 {row} 行：第一个生成的词元得到位置 {first}，而提示在 {right} 之前结束。",
        "请用 {expected}。"),
    "POS_FROZEN.prefill": ("位置停在 {value} 不动（词元 {indexes}）：这些词元无法按位置区分。", "请用 {expected}。"),
    "POS_FROZEN.decode": (
        "第 {row} 行：生成的词元一直停在位置 {first}；下一个正确的位置是 {right}。",
        "每个词元加 1：{expected}。"),
    "POS_COUNTS_PADS.prefill": ("位置把真实词元之间的填充也数进去了，所以距离不对。", "只数保留的词元：{expected}。"),
    "POS_COUNTS_PADS.decode": (
        "第 {row} 行：生成的词元从 {first} 开始编号，排在填充之后；而提示在 {right} 之前结束。",
        "只数保留的词元：{expected}。"),
    "POS_SHARED_ACROSS_ROWS.decode": (
        "所有行都得到位置 {first}，但各行的词元数不同；第 {row} 行应在 {right}。",
        "每行保留自己的位置：{expected}。"),
    "POS_LEFT_PAD.rope": (
        "左填充的行把填充也数进了位置，整体平移；用 RoPE 无害，因为只有距离起作用。",
        "要准确，只数保留的词元：{expected}。"),
    "POS_LEFT_PAD.depends": (
        "左填充的行把填充也数进了位置，整体平移；取决于 position_kind：RoPE 无害，绝对位置则是错误。",
        "只数保留的词元：{expected}。"),
    "POS_LEFT_PAD.absolute": (
        "左填充的行把填充也数进了位置；真实词元的绝对位置嵌入因此平移。",
        "只数保留的词元：{expected}。"),
    "POS_LENGTH": ("{expected} 个词元却有 {found} 个位置。", "在填充之后再构造位置，每个词元一个。"),
    "POS_RANK": (
        "位置的形状是 {shape}：三个轴、批次、词元；cu_seqlens 到 {end} 为止，所以大小为 3 的轴被当成了批次"
        "。",
        "只从位置的一个轴推导边界。"),
    "POS_RANK.axes": ("位置的形状是 {shape}：三个轴而没有批次；这个轴会被当成批次。", "补上批次轴：[3, B, T]。"),
    "POS_RANK.order": ("位置的形状是 {shape}；三个轴中的第一个大小必须是 3。", "请改成 {expected}。"),
    "PSEUDO_SEGMENTS": (
        "位置从词元 {tail} 起以 {length} 个 0 结尾：从位置推导段的使用方会把每个都当成一个词元的段。",
        "给填充像一段那样编号，或把它遮住。"),
    "OK_CONTINUATION": ("位置从 {past} 接着缓存的词元往下数：同一段在继续。", ""),
    # varlen
    "CU_NO_LEADING_ZERO": ("{key} 以 {first} 开头，第一段丢失了。", "在前面补 0：{expected}。"),
    "CU_END": (
        "{key} 到 {last} 结束，而这一行到 {total}：尾部不属于任何段，它的输出从未写入。",
        "让最后一项等于 {total}。"),
    "CU_END.past": ("{key} 到 {last} 结束，超出了 {total} 个词元的行。", "让最后一项等于 {total}。"),
    "CU_END.padding": (
        "{key} 到 {last} 结束；后面的填充从未写入，里面可能是任何值。",
        "不要读这些行的输出，或给填充单独一段。"),
    "CU_NEGATIVE": (
        "{key} 在第 {place} 项从 {before} 降到 {value}：出现了长度为负的段。",
        "边界必须递增：{expected}。"),
    "CU_ZERO_LENGTH": ("{key} 在第 {place} 项重复了 {value}：出现了没有词元的段。", "去掉重复的项：{expected}。"),
    "CU_DTYPE": ("边界的类型是 {found}，内核按 {expected} 读取。", "请转换：cu.to(torch.int32)。"),
    "CU_QK_MISMATCH": ("查询和键是同样的词元，边界却不同。", "两者用同一个数组：{expected}。"),
    "CU_QK_MISMATCH.count": ("边界描述了 {num_q} 段查询和 {num_k} 段键。", "两者每段各给一项。"),
    "CU_MAX_SEQLEN": (
        "max_seqlen 是 {found}，但最长的段有 {expected} 个词元；内核会在其中提前停下。",
        "请用 {expected}。"),
    # padding
    "PAD_SIDE": ("各行在右侧填充之后再生成：新词元被放在填充后面。", "把 padding_side 设为 \"left\"。"),
    "PAD_IS_EOS": (
        "填充的 id {pad} 同时是文本结束符，按 id 比较得到的掩码遮住了 {indexes} 处真正的文本结束。",
        "保留分词器给出的掩码：{expected}。"),
    "PAD_IS_EOS.labels": (
        "填充的 id {pad} 同时是文本结束符，标签忽略了所有真正的文本结束（{indexes} 处）：模型永远学不会停"
        "下。",
        "按位置而不是按 id 屏蔽标签：{expected}。"),
    "PAD_MASK_MISSING": (
        "这一行有填充（{pad}，在{side}侧）却没有掩码：填充被当作文本来读。",
        "传入 attention_mask = {expected}。"),
    "PAD_MASK_MISSING.ones": ("掩码保留了 {indexes} 处的填充（{pad}）。", "传入 attention_mask = {expected}。"),
    "READ_INDEX": ("读取的是第 {found} 列的 logits，最后一个真实词元在 {expected}。", "读取第 {expected} 列。"),
    "LAST_TOKEN": ("汇聚的是第 {found} 列，最后一个真实词元在 {expected}。", "汇聚第 {expected} 列。"),
    # tokens
    "BOS_DOUBLE": ("BOS（{bos}）在 {indexes} 处出现了两次。", "分词时使用 add_special_tokens=False。"),
    "BOS_DOUBLE.text": ("文本已以 BOS 开头，分词器又加了一个。", "分词时使用 add_special_tokens=False。"),
    "BOS_MISSING": ("段的开头 {indexes} 处没有 BOS（{bos}）。", "在每段文本开头加上 BOS。"),
    "BOS_MISSING.text": ("文本和分词器都没有写 BOS，而模型是有 BOS 的。", "让其中之一写上它。"),
    "BOS_MID": (
        "BOS（{bos}）出现在段的中间，{indexes} 处。",
        "每段加一次 BOS，而不是每条消息一次；如果这里是段的开头，请写明边界。"),
    "PATHS_DISAGREE": ("{one!r} 与 {other!r} 从第 {place} 处起 id 不同。", "到处使用同一种分词方式。"),
    "BOUNDARY_MERGE": (
        "提示的 id 不是整体的前缀：从第 {place} 处起不同，有词元跨过了边界。",
        "把提示和回答分开分词再连接 id，或按字符偏移来遮盖。"),
    "TEMPLATE_TOKENIZER_MISMATCH": (
        "模板写出 {text!r}，而这个分词器把它切成 {found} 个词元。",
        "使用属于这个分词器的模板，或把该标记加为特殊词元。"),
    "SPECIAL_SPLIT": ("特殊词元 {text!r} 被编码成 {found} 个词元。", "把它登记为特殊词元。"),
    "SPLIT_CHARACTER": ("词元 {place} 处的边界切断了一个字符：字节 {left} | {right}。", "把边界移到完整的字符处。"),
    "LENGTH_MISMATCH": ("{key} 有 {found} 项，而这一行有 {expected} 个。", "在截断和填充之后再构造它。"),
    "LENGTH_MISMATCH.rows": ("{key} 有 {found} 行，批次有 {expected} 行。", "每行各给一行。"),
    # labels
    "SPAN_OFF_BY_ONE": (
        "标签与区间错开一位：训练了 {num_trained} 个词元，应为 {num_wanted} 个（第一处差异在 {place}）。",
        "请用 labels = {expected}。"),
    "SPAN_OFF_BY_ONE.shift": (
        "标签相对 id 错开一位；labels_shifted 的说法却不同，所以它们被移了两次，或者根本没有移。",
        "只移一次：写明 labels_shifted，或给出与词元对齐的标签。"),
    "SPAN_OFF_BY_ONE.segment": ("区间 {name!r} 是 {found}，与段 {expected} 错开一位。", "请用 {expected}。"),
    "SPAN_OVERRUN": (
        "标签与区间的差异超过一个边缘：训练了 {num_trained} 个词元，应为 {num_wanted} 个（第一处差异在 {place}"
        "）。",
        "请用 labels = {expected}。"),
    "SPAN_OVERRUN.row": ("区间 {name!r} 到 {end} 结束，而这一行到 {total}。", "截断之后重新定位。"),
    "SPAN_OVERRUN.border": ("区间 {name!r} {found} 越过了段在 {border} 处的边界。", "让它在段的末尾结束。"),
    "SPAN_UNKNOWN": ("没有找到区间 {name!r}。", "按词元偏移去找；找不到时必须停止运行。"),
    "LABEL_CROSSES_BOUNDARY": (
        "段的最后一个词元（{indexes} 处）被训练去预测下一段的词元。",
        "把这些标签设为 -100：{expected}。"),
    "LABEL_CROSSES_BOUNDARY.unshifted": (
        "段的第一个词元（{indexes} 处）保留了标签；模型会自己移动标签，于是前一段被训练去预测它。",
        "把这些标签设为 -100：{expected}。"),
    "LABEL_CROSSES_BOUNDARY.rolled": (
        "标签是循环移动的 id：最后一个词元被训练去预测第一个。",
        "把最后一个标签设为 -100：{expected}。"),
    # heads and adapters
    "GQA_SHAPE": (
        "{heads} 个查询头和 {kv_heads} 个键值头原样交给了 {consumer}，而它需要两者相等。",
        "传入 enable_gqa=True，或先重复键和值。"),
    "GQA_SHAPE.divide": ("{heads} 个查询头不能平均分享 {kv_heads} 个键值头。", "请检查配置。"),
    "GQA_SHAPE.map": ("head_map 有 {found} 项，而查询头有 {expected} 个。", "每个查询头给一项。"),
    "GQA_ORDER": ("查询头读了错误的键值头：键被整体平铺，而应逐个重复。", "使用 repeat_interleave：{expected}。"),
    "ADAPTER_SCALE": (
        "适配器的缩放是 {found:g}；{formula} 在 alpha {alpha:g}、r {r}、权重 {weight:g} 时等于 {expected:g}"
        "。",
        "缩放应为 {expected:g}。"),
    "ADAPTER_ALPHA_MISSING": (
        "没有给出 lora_alpha（r = {r}），所以缩放 {given} 只是猜测。",
        "从适配器的配置里读取 lora_alpha。"),
    "ADAPTER_NOTHING_MATCHED": (
        "模型里没有模块与适配器的键相符：它什么也不会改变。",
        "比较适配器键的前缀与模型的模块名。"),
    "ADAPTER_NO_EFFECT": ("B 全是 0：适配器加载了，却什么也不改变。", "训练它，或检查加载的文件是否正确。"),
    "ADAPTER_NO_EFFECT.alpha": (
        "lora_alpha 是 0，缩放也就是 0：适配器加载了，却什么也不改变。", "从适配器的配置读取 lora_alpha。"),
    "ADAPTER_UNKNOWN": ("适配器 {found!r} 没有加载；已加载的是 {loaded}。", "请更正名称。"),
    "ADAPTER_COUNT": ("{expected} 行却有 {found} 个适配器名。", "行怎样重复（束搜索、多次采样），名称就怎样重复。"),
    "ADAPTER_MISROUTED": (
        "有 {num_indexes} 个词元经过了错误的适配器：第一个是段 {segment} 的词元 {token}，用的是 {used!r}，"
        "应为 {meant!r}。",
        "按段重新建立每个词元的适配器：{expected}。"),
    # what had to be assumed
    "assumed.mask_keep": ("掩码按 0/1 保留来读（1 = 可以读）", ""),
    "assumed.mask_added": ("掩码按加到分数上来读", ""),
    "assumed.mask_block": ("掩码按 true = 遮住来读", ""),
    "assumed.mask_depends": (
        "浮点的 0 和 1 掩码按保留来读；如果使用方把它加到分数上，就什么也遮不住：取决于使用方",
        ""),
    "assumed.mask_square": ("二维掩码按 [查询, 键] 来读", ""),
    "assumed.mask_rows": ("二维掩码按 [行, 词元] 来读", ""),
    "assumed.mask_row_consumer": (
        "交给 {consumer} 的是每个词元一个数：谁能读谁取决于它怎样广播，所以没有判断格子",
        ""),
    "assumed.no_consumer": ("没有说明使用方：谁能读谁取决于它，所以没有判断格子", ""),
    "assumed.hf": ("没有说明使用方：假定是 transformers 的前向", ""),
    "assumed.causal_model": ("假定 transformers 模型是因果的（没有说明 is_causal）", ""),
    "assumed.no_mask_consumer": ("{consumer} 既没有掩码也没有开关：没有判断格子", ""),
    "assumed.segments": ("没有给出段，所以从 {source} 得到", ""),
    "assumed.one_segment": ("整行当作一段，因为没有什么描述更多的段", ""),
    "assumed.tail": ("从 {end} 起的词元不属于任何段：当作填充", ""),
    "assumed.rows": ("段描述的是一个打包行；批次有 {rows} 行，而且不比它长，所以没有拿它来判断这些行", ""),
    "assumed.version": ("假定是最新的 transformers，它会从重新计数的位置读出打包", ""),
    "assumed.window_model": ("窗口 {window} 由使用方自己应用", ""),
    "assumed.too_ragged": ("掩码的空洞太多，无法逐格判断", ""),
    "assumed.too_long": ("{cells} 个格子太多，无法判断", ""),
    "assumed.position_kind": ("没有说明 position_kind：平移的位置是否要紧取决于它", ""),
    "assumed.eos": ("行内的 EOS 之后可能开始另一段文本；那里是不是边界取决于 lengths", ""),
    "assumed.labels_end": ("最后一个标签预测的是行后的词元；对不对取决于 lengths", ""),
    "assumed.gqa": ("假定 {consumer} 看到之前键和值已经重复（没有说明 enable_gqa）", ""),
}

# What facts say in words of their own.
TERMS: Mapping[str, str] = {
    "unknown": "未知", "any": "任意", "… {count} in all": "… 共 {count} 个", "at least ": "至少",
    "the consumer": "使用方", "causal default": "默认的因果性", "nothing": "（没有来源）",
    "unknown without a consumer": "（没有使用方，无从知道）", "cells": "格子", "padding": "填充", "left": "左",
    "right": "右", "total": "行的长度", "true or 1 = may attend": "true 或 1 = 可以读", "true = hidden": "true = 遮住",
    "0 = may attend, very negative = hidden": "0 = 可以读，很大的负数 = 遮住",
}
