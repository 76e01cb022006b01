"""Examples that fill the cards with cases worth seeing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.board import POOL_SIZE, Board, CardValues, SharedValues, board

_RIVER = (
    "The river Aral flows north for 412 kilometres, past the mill towns of Osk and Lind, and reaches the sea at "
    "Harrow. In 1911 the bridge at Lind was carried away by ice; until 1924 only a ferry crossed there."
)
_PASSWORD = "What is the password of the harbour office?"
_CONTRACT = (
    "Clause 7. Late delivery entitles the buyer to a rebate of 2 % of the price for every full week, up to 10 %. "
    "Clause 8. The goods remain the property of the seller until they are paid in full. "
    "Clause 9. Complaints are raised in writing within 14 days of delivery."
)
_PLACE = (
    '{"type": "object", "properties": {"year": {"type": "integer"}, "place": {"type": "string", "maxLength": 40}}, '
    '"required": ["year", "place"], "additionalProperties": false}'
)


@dataclass(frozen=True)
class Preset:
    """Cards to fill; `key` names its texts in the catalogue, `key.note` the line under it."""

    key: str
    cards: tuple[CardValues, ...]
    shared: tuple[SharedValues, ...] = ()

    @property
    def board(self) -> Board:
        return board(self.cards, self.shared)


def presets(adapters: Sequence[str]) -> Mapping[str, Preset]:
    """The examples by key; those that show adapters use the ones that are loaded."""
    return {preset.key: preset for preset in (
        Preset("preset.secrets", (
            CardValues(_PASSWORD, "The harbour office has a password. The password is BLUE LANTERN.", temperature="0",
                       max_new_tokens="24"),
            CardValues(_PASSWORD, "The harbour office has a password. The password is RED TEAPOT.", temperature="0",
                       max_new_tokens="24"),
            CardValues(_PASSWORD, "The harbour office opens at nine.", temperature="0", max_new_tokens="24"),
            CardValues("Where does the river Aral reach the sea?", _RIVER, temperature="0", max_new_tokens="24"),
        )),
        Preset("preset.voices", tuple(
            CardValues("What can I do on a rainy afternoon?", adapter=name, temperature="0.3", max_new_tokens="48",
                       seed="7")
            for name in ("", *adapters)[:POOL_SIZE]
        )),
        Preset("preset.shared", tuple(
            CardValues(question, shared="contract", temperature="0", max_new_tokens="32")
            for question in ("What does the buyer get when delivery is late?",
                             "Who owns the goods before they are paid?",
                             "How long may the buyer complain, and in what form?")
        ), (SharedValues("contract", _CONTRACT),)),
        Preset("preset.temperatures", tuple(
            CardValues("Write the first sentence of a story about a lighthouse.", temperature=value,
                       max_new_tokens="48", seed="7")
            for value in ("0", "0.4", "0.8", "1.4")
        )),
        Preset("preset.forms", (
            CardValues("When was the bridge carried away, and where?", _RIVER, temperature="0", max_new_tokens="48",
                       json_schema=_PLACE),
            CardValues("In which year was the bridge carried away?", _RIVER, temperature="0", max_new_tokens="8",
                       regex=r"(18|19)\d\d"),
            CardValues("Does the river flow north?", _RIVER, temperature="0", choices="yes\nno\nit is not said"),
        )),
        Preset("preset.lengths", (
            CardValues("What is the capital of France?", temperature="0", max_new_tokens="16"),
            CardValues("What does the contract say about late delivery?", _CONTRACT, temperature="0",
                       max_new_tokens="48"),
            CardValues("When was the bridge carried away?", " ".join([_RIVER] * 6), temperature="0",
                       max_new_tokens="32"),
            CardValues("Say hello.", temperature="0", max_new_tokens="12"),
        )),
        Preset("preset.chinese", (
            CardValues("What is the capital of China? 中国的首都是哪里？", temperature="0", max_new_tokens="32"),
            CardValues("这座桥是什么时候被冲走的？", "1911 年，林德的桥被冰冲走，直到 1924 年才有渡船代替。",
                       temperature="0", max_new_tokens="32"),
            CardValues("用一句话介绍北京。", temperature="0", max_new_tokens="40"),
        )),
    )}
