"""The words of the fault lab: each fault, what it does, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping

# key: (English, Chinese)
WORDS: Mapping[str, tuple[str, str]] = {
    "lab.title": ("Break it: these questions with a classic fault", "弄坏它：让这些问题带着经典错误运行"),
    "lab.start": ("Break it", "弄坏它"),
    "lab.hint": (
        "The real model answers the cards above with the fault; picture, proofs and answers show what it does.",
        "真实模型会带着这个错误回答上面的卡片；图、证明和回答会显示后果。"),
    "lab.recording": ("Answering with the fault …", "正在带着错误回答……"),
    "lab.running": ("Proving: forward {done} of {total}", "证明中：第 {done} / {total} 次前向"),
    "lab.broken": ("Broken", "被破坏"),
    "lab.harmless": ("Harmless here", "在此无害"),
    "lab.harmless.positions": (
        "Positions run on over the borders, but the mask is right, and RoPE sees only the distances inside a segment. "
        "Only the context limit comes nearer.",
        "位置越过边界一直递增，但掩码是正确的，而 RoPE 只看段内的距离。只是离上下文上限更近了。"),
    "lab.harmless.adapters": ("All questions use the same adapter, so nothing changes hands.",
                              "所有问题都用同一个适配器，换来换去都一样。"),
    "lab.harmless.one": ("There is one question only, so there is no neighbour to mix it up with.",
                         "只有一个问题，没有邻居可以混淆。"),
    "lab.harmless.here": ("With these questions it changes nothing.", "对这些问题没有任何影响。"),
    "lab.question": ("question", "问题"),
    "lab.right": ("right (greedy)", "正确（贪心）"),
    "lab.wrong": ("with the fault", "带着错误"),
    "lab.same": ("the same answer", "回答相同"),
    "lab.named": ("The doctor, given the faulty arrays, names it: {code}.", "诊断看到出错的数组，说出了它：{code}。"),
    "lab.unnamed": ("The doctor finds nothing of {fault} in the arrays.", "诊断在数组里没有看到“{fault}”。"),
    "fault.shift-interval": ("Interval shifted by one", "区间错开一位"),
    "fault.shift-interval.note": ("Every segment border lies one token late, as when one BOS was not counted.",
                                  "每条段边界都晚了一个词元，就像少数了一个 BOS。"),
    "fault.no-causal": ("Causal triangle dropped", "丢了因果三角"),
    "fault.no-causal.note": ("Tokens read later tokens of their own question.", "词元能读到自己问题里更靠后的词元。"),
    "fault.inverted": ("Inverted polarity", "极性相反"),
    "fault.inverted.note": ("The mask means the opposite: what is allowed is hidden, what is hidden is read.",
                            "掩码的含义正好相反：允许的被遮住，遮住的能读到。"),
    "fault.float01": ("0/1 floats added", "0/1 浮点数相加"),
    "fault.float01.note": ("The mask of 0 and 1 is added to the scores, so it hides nothing.",
                           "0 和 1 的掩码被加到分数上，什么也没有遮住。"),
    "fault.ones-2d": ("All-ones 2-D mask", "全 1 的二维掩码"),
    "fault.ones-2d.note": ("An all-ones mask beside restarted positions switches packing off: one causal row.",
                           "全 1 掩码与重新计数的位置在一起，打包被关掉：整行只剩因果。"),
    "fault.no-reset": ("Positions not restarted", "位置未重新计数"),
    "fault.no-reset.note": ("Positions run on over the borders while the mask stays right.",
                            "掩码保持正确，位置越过边界一直递增。"),
    "fault.running-borders": ("Borders from running positions", "边界取自递增的位置"),
    "fault.running-borders.note": ("Positions are not restarted, and borders are taken from them: there are none.",
                                   "位置没有重新计数，而边界取自位置：于是没有边界。"),
    "fault.one-cell": ("One leaking cell", "泄漏一个格子"),
    "fault.one-cell.note": ("The last token of each question but the first reads one token of the question before it.",
                            "除第一个外，每个问题的最后一个词元读到了前一个问题的一个词元。"),
    "fault.adapter-shift": ("Adapters shifted", "适配器错位"),
    "fault.adapter-shift.note": ("Each question goes through the adapter of its neighbour.",
                                 "每个问题都经过了邻居的适配器。"),
}
