"""The words of the history tab, of its report, and of a comparison."""

from __future__ import annotations

from collections.abc import Mapping

# key: (English, Chinese)
WORDS: Mapping[str, tuple[str, str]] = {
    "tab.history": ("History", "历史"),
    # the list
    "history.keep": ("Keep runs", "保存运行记录"),
    "history.search": ("Search", "搜索"),
    "history.search_hint": ("words of a question, an answer, a model, an adapter", "问题、回答、模型或适配器中的词"),
    "history.import": ("Import a run", "导入一次运行"),
    "history.clear": ("Delete all", "全部删除"),
    "history.clear_sure": ("Delete them all for good", "确定全部永久删除"),
    "history.on_local": ("Kept in {path}; nothing leaves this machine.", "保存在 {path}；不会离开这台机器。"),
    "history.on_public": ("Kept for this browser tab alone and deleted when it is closed.",
                          "仅供这个浏览器标签页使用，关闭后即删除。"),
    "history.off": ("Runs are not kept.", "不保存运行记录。"),
    "history.empty": ("No run is kept yet: run something, and it appears here.",
                      "还没有记录：运行一次，就会出现在这里。"),
    "history.nothing": ("No run holds these words.", "没有运行包含这些词。"),
    "history.more": ("{shown} of {total} {total|run|runs}; search to see others.",
                     "显示 {total} 次运行中的 {shown} 次；可用搜索查看其他。"),
    "history.questions": ("{count} {count|question|questions}", "{count} 个问题"),
    "history.isolated": ("isolated", "已隔离"),
    "history.leaks": ("leaks", "有泄漏"),
    "history.gone": ("This run is no longer kept.", "这次运行已不在记录中。"),
    "history.imported": ("{name} was imported.", "已导入 {name}。"),
    "history.copied": ("Copied.", "已复制。"),
    "history.copy_failed": ("The browser did not allow it; the text is below to be copied by hand.",
                            "浏览器不允许复制；文本在下方，请手动复制。"),
    # an opened run
    "history.choose": ("Choose a run to see it, reopen it, compare it or take it along.",
                       "选择一次运行，即可查看、重新打开、比较或导出。"),
    "history.open": ("Open in cards", "放回卡片"),
    "history.compare": ("Compare with…", "与…比较"),
    "history.compare_hint": ("Now choose the run to compare it with.", "现在选择要比较的另一次运行。"),
    "history.json": ("JSON", "JSON"),
    "history.csv": ("CSV", "CSV"),
    "history.html": ("Report", "报告"),
    "history.python": ("Copy as Python", "复制为 Python"),
    "history.curl": ("Copy as curl", "复制为 curl"),
    "history.delete": ("Delete", "删除"),
    "history.reopened": ("These are the cards of the run of {at}.", "这些是 {at} 那次运行的卡片。"),
    "record.run": ("Run of {at}", "{at} 的运行"),
    "record.model": ("Model", "模型"),
    "record.engine": ("Engine", "引擎"),
    "record.adapters": ("Adapters", "适配器"),
    "record.versions": ("Versions", "版本"),
    "record.time": ("Time", "时间"),
    "record.seconds": ("{seconds} s, {forwards} {forwards|forward|forwards}, {rate} tokens a second",
                       "{seconds} 秒，{forwards} 次前向，每秒 {rate} 个词元"),
    "record.memory": ("KV memory", "KV 内存"),
    "record.peak": ("{peak} at its peak, {predicted} predicted", "峰值 {peak}，预测 {predicted}"),
    "record.audit": ("Audit", "审计"),
    "record.no_audit": ("not audited", "未审计"),
    "record.fault": ("with the fault {name} injected", "注入了故障 {name}"),
    "record.notice": ("Ended by", "结束原因"),
    "record.context": ("context", "上下文"),
    "record.shared": ("shared context {name}", "共享上下文 {name}"),
    "record.system": ("system", "系统提示"),
    "record.base": ("base", "基座"),
    "record.drawn": ("drawn with", "抽样参数"),
    "record.tokens": ("{count} {count|token|tokens}", "{count} 个词元"),
    "record.ttft": ("TTFT {ms} ms", "首词元 {ms} ms"),
    "record.tpot": ("TPOT {ms} ms", "每词元 {ms} ms"),
    "record.sample": ("sample {number}", "样本 {number}"),
    "record.no_answer": ("no answer", "没有回答"),
    "record.mask": ("Who reads whom: {segments} {segments|segment|segments}, {tokens} {tokens|token|tokens}, "
                    "{allowed} allowed {allowed|cell|cells}",
                    "谁能读谁：{segments} 段，{tokens} 个词元，{allowed} 个允许的格子"),
    "record.mask_axes": ("keys → · queries ↓ · dashed: the first generated token",
                         "键 → · 查询 ↓ · 虚线：第一个生成的词元"),
    "record.segment": ("{name} · {length} {length|token|tokens}, {generated} generated",
                       "{name} · {length} 个词元，生成 {generated} 个"),
    "record.made_by": ("Made by Kev Workbench.", "由 Kev 工作台生成。"),
    # a comparison
    "compare.title": ("{left} beside {right}", "{left} 与 {right} 对比"),
    "compare.only": ("Only what differs is shown.", "只显示不同之处。"),
    "compare.same": ("Questions, settings and answers are the same.", "问题、设置和回答都相同。"),
    "compare.missing": ("not asked", "没有这个问题"),
    "compare.answer": ("answer", "回答"),
    "compare.settings": ("engine", "引擎"),
    "compare.times": ("times", "用时"),
    # mistakes
    "field.file": ("The file", "文件"),
    "error.history_unavailable.read_only": (
        "The history in {file} may not be written ({detail}); give this user the right to write there, or set KEV_HOME "
        "to another folder. Runs go on without being kept.",
        "历史文件 {file} 不可写（{detail}）；请给当前用户写权限，或用 KEV_HOME 指定其他文件夹。"
        "运行照常进行，只是不保存。"),
    "error.history_unavailable.corrupt": (
        "The history in {file} is damaged ({detail}); move the file away and a new one is begun. Runs go on without "
        "being kept.", "历史文件 {file} 已损坏（{detail}）；移走它就会重新建立。运行照常进行，只是不保存。"),
    "error.history_unavailable.newer": (
        "The history in {file} was written by a newer workbench ({detail}); start that one, or move the file away.",
        "历史文件 {file} 由更新的工作台写入（{detail}）；请启动那个版本，或移走文件。"),
    "error.history_unavailable.busy": (
        "The history in {file} is being written by another process ({detail}); try again in a moment.",
        "历史文件 {file} 正被另一个进程写入（{detail}）；请稍后再试。"),
    "error.history_unavailable.other": (
        "The history in {file} cannot be used ({detail}); move the file away and a new one is begun.",
        "历史文件 {file} 无法使用（{detail}）；移走它就会重新建立。"),
}
