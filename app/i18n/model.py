"""The words of the panel under the masthead: the model."""

from __future__ import annotations

from collections.abc import Mapping

# key: (English, Chinese)
WORDS: Mapping[str, tuple[str, str]] = {
    "model.open": ("Choose another model", "选择其他模型"),
    "model.spec": ("Model", "模型"),
    "model.spec_hint": ("embedded, a folder, hf:owner/name, modelscope:owner/name or gguf:path",
                        "embedded、文件夹、hf:owner/name、modelscope:owner/name 或 gguf:path"),
    "model.load": ("Load", "加载"),
    "model.cancel": ("Cancel", "取消"),
    "model.cancelling": ("Cancelling: the load ends at its next step.", "正在取消：加载会在下一步结束。"),
    "model.cancelled": (
        "The load of {name} was cancelled; {model} answers as before. Files that had arrived are kept for the next "
        "time, and nothing half-made is left.",
        "已取消加载 {name}，仍由 {model} 回答。已下载完的文件会保留到下次，没有留下半成品。"),
    "model.checking": ("Reading what {name} is and whether it fits.", "正在查看 {name} 的配置，并检查内存是否足够。"),
    "model.downloading": ("Fetching {name}: {done} of {total}.", "正在下载 {name}：{done} / {total}。"),
    "model.converting": ("Converting {name}: its weights need {needed}.", "正在转换 {name}：权重需要 {needed}。"),
    "model.converting_unknown": ("Converting {name}.", "正在转换 {name}。"),
    "model.reading": ("Loading {name}: its weights need {needed}. The model before answers meanwhile.",
                      "正在加载 {name}：权重需要 {needed}。在此期间由之前的模型回答。"),
    "model.reading_unknown": ("Loading {name}. The model before answers meanwhile.",
                              "正在加载 {name}。在此期间由之前的模型回答。"),
    "model.loaded": ("{name} answers now, in every tab (loaded in {seconds} s). The adapters of the model before "
                     "went with it.",
                     "现在所有标签页都由 {name} 回答（加载用时 {seconds} 秒）。之前模型的适配器已随之卸下。"),
    "field.model": ("The model", "模型"),
    "error.model_fixed": ("The model of this public page is fixed.", "这个公开页面的模型是固定的。"),
    "error.model_loading": ("A model is being loaded; wait until it is there, or cancel it.",
                            "正在加载一个模型，请等它完成，或取消它。"),
    "error.load_cancelled": ("The load of {name} was cancelled; load it again to go on.",
                             "已取消加载 {name}；再次加载即可继续。"),
    "error.not_enough_space": (
        "{what} needs {needed_bytes:,} bytes but {free_bytes:,} are free; {way_out}.",
        "{what} 需要 {needed_bytes:,} 字节，但只有 {free_bytes:,} 字节空闲；{way_out}。",
    ),
}
