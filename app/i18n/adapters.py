"""The words of the adapters tab."""

from __future__ import annotations

from collections.abc import Mapping

# key: (English, Chinese)
WORDS: Mapping[str, tuple[str, str]] = {
    # the table
    "adapters.column.name": ("adapter", "适配器"),
    "adapters.column.version": ("version", "版本"),
    "adapters.column.rank": ("rank", "秩"),
    "adapters.column.alpha": ("alpha", "alpha"),
    "adapters.column.scale": ("scale", "缩放"),
    "adapters.column.modules": ("modules", "模块"),
    "adapters.column.size": ("size", "大小"),
    "adapters.column.dtype": ("file dtype", "文件精度"),
    "adapters.column.place": ("place", "位置"),
    "adapters.column.uses": ("uses", "使用次数"),
    "adapters.column.effect": ("Δ logits · top", "Δ logits · 首选"),
    "adapters.none": ("No adapter is loaded. Every question is answered by the base model.",
                      "还没有加载适配器，所有问题都由基座模型回答。"),
    "adapters.pool": ("{count} loaded · {resident} of {places} {places|place|places} in use · {size} MiB in memory",
                      "已加载 {count} 个 · 用了 {places} 个常驻位置中的 {resident} 个 · 内存 {size} MiB"),
    "adapters.modules_of": ("{count} of {total}", "{total} 个中的 {count} 个"),
    "adapters.resident": ("resident", "常驻"),
    "adapters.offloaded": ("offloaded", "已移出"),
    "adapters.rename_label": ("Rename {name}", "重命名 {name}"),
    "adapters.replace_label": ("Replace the content of {name}", "替换 {name} 的内容"),
    "adapters.unload_label": ("Unload {name}", "卸载 {name}"),
    "adapters.sure": ("Unload?", "卸载？"),
    "adapters.dead": ("dead:", "无效："),
    "adapters.moves": ("logits move by {value}", "logits 只变动 {value}"),
    "adapters.effect": ("{value} · {share}", "{value} · {share}"),
    "adapters.effect_label": (
        "On a fixed prompt its logits differ from the base's by up to {value}; at {share} of the positions another "
        "token is the most likely one.",
        "在固定的提示上，它的 logits 与基座最多相差 {value}；{share} 的位置上最可能的词元不同。"),
    "adapters.flaw.scale": ("scale 0", "缩放为 0"),
    "adapters.flaw.b": ("B is zero", "B 为零"),
    "adapters.flaw.zero": ("A or B is zero", "A 或 B 为零"),
    "adapters.check": ("Check effects", "检查作用"),
    # the form
    "adapters.form": ("Add an adapter", "添加适配器"),
    "adapters.form.note": ("A PEFT LoRA as safetensors. Its two files, a .zip of its folder, or where it is.",
                           "safetensors 格式的 PEFT LoRA：两个文件、整个文件夹的 .zip，或它所在的位置。"),
    "adapters.fixed": ("On this public page the adapters are fixed; run your own copy to add some.",
                       "这个公开页面的适配器是固定的；想添加，请自己运行一份。"),
    "adapters.name": ("Name", "名称"),
    "adapters.name_hint": ("taken from the source", "取自来源"),
    "adapters.source": ("Folder or hub", "文件夹或仓库"),
    "adapters.source_hint": ("/path, hf:owner/name or modelscope:owner/name",
                             "/路径、hf:owner/name 或 modelscope:owner/name"),
    "adapters.files": ("Drop files here", "把文件放到这里"),
    "adapters.add": ("Add", "添加"),
    "adapters.replace": ("Replace", "替换"),
    "adapters.cancel": ("Cancel", "取消"),
    # what was said
    "adapters.working": ("Reading …", "正在读取……"),
    "adapters.downloading": ("{done} of {total} MiB", "{done} / {total} MiB"),
    "adapters.added": ("Loaded “{name}”: rank {rank}, {modules} {modules|module|modules}, version {version}.",
                       "已加载“{name}”：秩 {rank}，{modules} 个模块，版本 {version}。"),
    "adapters.replaced": (
        "“{name}” is now version {version}: rank {rank}, {modules} {modules|module|modules}. Runs under way keep "
        "theirs.",
        "“{name}”现在是版本 {version}：秩 {rank}，{modules} 个模块。正在进行的运行保留原来的版本。"),
    "adapters.replacing": ("Choose what “{name}” is to become.", "请选择“{name}”的新内容。"),
    "adapters.renamed": ("“{old}” is now called “{new}”.", "“{old}”现在叫“{new}”。"),
    "adapters.unloaded": ("Unloaded “{name}”.", "已卸载“{name}”。"),
    "adapters.unloaded_held": (
        "Unloaded “{name}”; {count} running {count|answer keeps it to its|answers keep it to their} end.",
        "已卸载“{name}”；{count} 个正在进行的回答会用它到结束。"),
    "adapters.measuring": ("Measuring, once running answers have ended …", "等正在进行的回答结束后测量……"),
    "adapters.measured": ("Measured {count} against the base in mixed passes; {dead} change nothing.",
                          "在混合前向中与基座对比了 {count} 个；{dead} 个不起作用。"),
    "adapters.warn.untouched": (
        "{count} {count|module|modules} that its configuration targets {count|has|have} no weights and "
        "{count|stays|stay} as in the base.",
        "配置列出的模块中有 {count} 个没有权重，保持基座原样。"),
    "adapters.warn.halves": ("Its numbers are {dtype} and the model's {base}: they are rounded, or lost where small.",
                             "它的数是 {dtype}，模型是 {base}：数值会被舍入，很小的会丢失。"),
    "adapters.warn.flaw.scale": ("It changes nothing: its scale is 0.", "它不起作用：缩放为 0。"),
    "adapters.warn.flaw.b": ("It changes nothing: all its B matrices are zero, as before training.",
                             "它不起作用：所有 B 矩阵都是零，像未训练过一样。"),
    "adapters.warn.flaw.zero": ("It changes nothing: in every module its A, its B or its scale is zero.",
                                "它不起作用：每个模块的 A、B 或缩放为零。"),
    # mistakes
    "error.adapter_source": ("Give either files or where they are, and not both.", "请上传文件或写明位置，二者取一。"),
    "error.adapter_name": ("The adapter needs a name.", "适配器需要一个名称。"),
    "error.adapter_taken": ("“{name}” is loaded already; choose another name, or replace it in its row.",
                            "“{name}”已经加载；请换个名称，或在它那一行替换。"),
    "error.adapters_fixed": ("On this public page the adapters are fixed; run your own copy to change them.",
                             "这个公开页面的适配器是固定的；想更改，请自己运行一份。"),
    "field.adapter": ("The adapter", "适配器"),
    "way.adapter": ("on a hub it is named hf:owner/name or modelscope:owner/name, or with @revision behind it",
                    "hf:owner/name 或 modelscope:owner/name，后面可加 @revision"),
    # comparing
    "compare": ("Compare", "比较"),
    "adapters.same": ("the same as the base", "与基座相同"),
    "compare.differs": ("{new} of {total} {total|word differs|words differ}", "{total} 个词中 {new} 个不同"),
    # the picture
    "tokens.title": ("whose adapter", "谁的适配器"),
    "tokens.more": ("… {count} more …", "……另有 {count} 个……"),
    "tokens.one": ("token {at} ‘{text}’ · {name}", "词元 {at} ‘{text}’ · {name}"),
    "tokens.empty": ("Compare or run, and the tokens of the packed row stand here in the colours of their adapters.",
                     "比较或运行后，打包行的词元会以各自适配器的颜色显示在这里。"),
}
