"""The words of the first minute: the tour, and the list of keys."""

from __future__ import annotations

from collections.abc import Mapping

# key: (English, Chinese)
WORDS: Mapping[str, tuple[str, str]] = {
    "tour.label": ("A tour of one minute", "一分钟导览"),
    "tour.step": ("{index} of {total}", "{index} / {total}"),
    "tour.cards": ("Every card is a question with its own context, adapter and sampling. An example is filled in; "
                   "change whatever you like.",
                   "每张卡片是一个问题，有自己的上下文、适配器和采样设置。已填好示例，可任意修改。"),
    "tour.run": ("Run answers all cards at once: one forward of the model a step serves them all.",
                 "“运行”同时回答所有卡片：每一步只用一次模型前向。"),
    "tour.mask": ("The mask shows who reads whom, drawn from the plan that was executed. Point at it, zoom, "
                  "go back step by step.", "掩码显示谁能读谁，按实际执行的计划绘制。可指向、放大、逐步回看。"),
    "tour.memory": ("Every square is a block of KV memory in the colour of its question.",
                    "每个方格是一块 KV 内存，颜色即所属的问题。"),
    "tour.audit": ("Audit proves that no question reads another. The keys of this page are listed under “?”.",
                   "“审计”证明没有问题能读到别的问题。按“?”可查看快捷键。"),
    "tour.next": ("Next", "下一步"),
    "tour.end": ("Done", "完成"),
    "tour.dismiss": ("Do not show again", "不再显示"),
    "keys": ("Keys", "快捷键"),
    "keys.close": ("Close", "关闭"),
    "keys.run": ("run all cards", "运行所有卡片"),
    "keys.stop": ("stop; in the mask: unlock", "停止；在掩码中：解除锁定"),
    "keys.card": ("move the card up or down", "上移或下移卡片"),
    "keys.tokens": ("in an answer's token view: from token to token", "在回答的词元视图中：逐词元移动"),
    "keys.cell": ("in the mask: move by a cell, with Shift by 16", "在掩码中：移动一格，按住 Shift 移动 16 格"),
    "keys.lock": ("in the mask: lock the cell", "在掩码中：锁定格子"),
    "keys.zoom": ("in the mask: nearer, farther, everything", "在掩码中：放大、缩小、显示全部"),
    "keys.scrub": ("in the mask: a step back, a step on", "在掩码中：前一步、后一步"),
    "keys.list": ("this list", "本列表"),
}
