"""Why an adapter was refused, in Chinese; the English stands with the reasons themselves (kev_engine/adapters)."""

from __future__ import annotations

from collections.abc import Mapping

from kev_engine.adapters.reasons import REASONS, TRAINED_ON

_CHINESE: Mapping[str, str] = {
    "no_source": "{path} 不是文件夹，不是文件夹的 .zip，也不是 hf:owner/name 或 modelscope:owner/name",
    "hub": "仓库站点报告：{message}",
    "unreadable": "{path} 无法读取（{error}）",
    "missing": "{path} 里没有 {file}",
    "pickle": "{path} 只有 {file}，它是可能执行代码的 pickle；请在可信的环境里转换：{command}",
    "link": "{file} 是指向文件夹之外的链接，请把文件本身复制进来",
    "irregular": "{file} 不是普通文件",
    "too_large": "{file} 超过了 {limit} 字节的上限",
    "upload": "上传的是 {files}；请给一个 .zip，或同时给 {config} 和 {weights}",
    "archive_unreadable": "压缩包 {path} 无法读取（{error}）",
    "archive_members": "压缩包里有 {count} 个文件，多于 {limit} 个",
    "archive_outside": "压缩包里的 {member} 指向包外",
    "archive_link": "压缩包里的 {member} 是链接，请打包文件本身",
    "archive_twice": "压缩包里有两个 {member}",
    "archive_several": "压缩包里有多个适配器（{folders}），请只打包一个",
    "archive_too_large": "{member} 解压后超过 {limit} 字节的上限",
    "not_json": "adapter_config.json 不是可读的 JSON（{error}）",
    "no_object": "adapter_config.json 里不是 JSON 对象",
    "method": "peft_type 是 {value}，只有 LORA 能逐词元应用",
    "bias": "bias 是 {value}，会改变基座的偏置；请用 bias='none' 训练",
    "init": "init_lora_weights 是 {value}：它是在改动过的基座权重上训练的；"
            "请用 path_initial_model_for_weight_conversion 重新保存，变成普通 LoRA",
    "use_dora": "这是 DoRA 适配器，它会重新缩放基座权重，不能逐词元相加",
    "modules_to_save": "modules_to_save 会整个替换基座的模块；请改用 LoRA 训练这些模块",
    "lora_bias": "lora_bias 会加上自己的偏置；请用 lora_bias=False 训练",
    "alora_invocation_tokens": "这是激活式 LoRA（aLoRA），它从序列中间才开始生效",
    "target_parameters": "target_parameters 适配的是单独的参数，而不是 Linear 模块",
    "layer_replication": "layer_replication 会改变基座的层数",
    "trainable_token_indices": "trainable_token_indices 会替换基座词嵌入的若干行",
    "use_qalora": "这是 QALoRA 适配器，它会对输入做池化；请转换成普通 LoRA",
    "megatron_config": "megatron_config 针对由 Megatron 切分的模型",
    "ensure_weight_tying": "ensure_weight_tying 把适配器和词嵌入绑在一起；请不带它训练",
    "unknown_key": "配置把 {key} 设为 {value}，这里不认识",
    "wrong_rank": "配置里的 {key} 是 {value}，但应为 1 到 {limit} 的整数",
    "wrong_number": "配置里的 {key} 是 {value}，但应为有限的数",
    "wrong_flag": "配置里的 {key} 是 {value}，但应为 true 或 false",
    "wrong_table": "配置里的 {key} 是 {value}，但应为模块模式的对照表",
    "wrong_names": "配置里的 {key} 是 {value}，但应为名称列表或一个字符串",
    "wrong_layers": "配置里的 {key} 是 {value}，但应为层号或层号列表",
    "wrong_regex": "配置里的 {key} 是 {value}，但应为正则表达式（{error}）",
    "no_targets": "配置里的 target_modules 是 {value}，但应为模块名列表、正则表达式或 'all-linear'",
    "layers_with_regex": "target_modules 是一个字符串时，配置里不能有 {key}",
    "slow_regex": "配置里有正则表达式匹配太慢",
    "nothing_matches": "target_modules {value} 与这个模型的任何模块都不匹配",
    "not_safetensors": "权重不是完整的 safetensors 文件（{error}）",
    "no_tensors": "权重文件里没有张量",
    "no_lora": "权重文件里没有 lora_A 和 lora_B",
    "wrong_dtype": "{key} 是 {dtype}，不是 16、32 或 64 位浮点数",
    "twice": "权重文件里有两个 {key}",
    "row_half": "{key} 针对词嵌入，但这个模型的该模块不是词嵌入",
    "column_half": "{key} 针对 Linear 模块，但这个模型的该模块不是 Linear",
    "stray_key": "{key} 与这个模型的任何模块都不对应",
    "own_copy": "{key} 是基座权重的副本，并且与这个模型的不同；如果不需要它，请用 save_embedding_layers=False 保存",
    "not_targeted": "{module} 有权重，但配置没有把它列为目标",
    "no_module": "{module} 有权重，但这个模型没有这个模块",
    "half_missing": "{module} 有 {given} 却没有 {missing}",
    "not_linear": "{module} 是 {type}；只有 Linear 模块和词嵌入能逐词元适配",
    "rank_differs": "{key} 的秩是 {given}，配置却说是 {rank}",
    "shape": "{key} 的形状是 {given}，但这个模型需要 {wanted}",
    "not_finite": "{key} 含有非有限的数",
    "overflow": "{key} 对这个模型的 {dtype} 来说太大（缩放为 {scale}）",
}

# key: (English, Chinese)
WORDS: Mapping[str, tuple[str, str]] = {
    "error.adapter_refused": ("Adapter “{name}” was refused: {reason}.", "适配器“{name}”被拒绝：{reason}。"),
    "refused.trained_on": (TRAINED_ON, "；它是在 {base} 上训练的"),
    **{f"refused.{kind}": (text, _CHINESE[kind]) for kind, text in REASONS.items()},
}
