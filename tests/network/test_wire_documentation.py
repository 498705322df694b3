"""docs/wire.md: the frames in hexadecimal mean what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from trimtab import Filter
from trimtab.protocol.codec import encode_frame
from trimtab.protocol.frames import Frame, Hello, Payload
from trimtab.protocol.messages import MapMessage, Publish, Subscribe, WireValue

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")


def test_the_frames_in_hexadecimal_are_what_is_sent() -> None:
    shown = [bytes.fromhex(re.sub(r"\s", "", block)) for block in re.findall(r"```hex\n(.*?)```", PAGE, re.DOTALL)]
    values: dict[str, WireValue] = {"class": "STOCK", "volume": 300001}
    wanted: list[Frame] = [
        Hello(2, "client", "alice", "5f3a", 1),
        Payload(1, 0, [Subscribe(id="alice/s1", filter=Filter.parse("[class,eq,'STOCK'],[volume,>,300000]"))]),
        Payload(
            2, 1, [Publish(publisher="alice", sequence=1, values=values, origin_s=1_700_000_000.5, session="5f3a")]
        ),
    ]
    assert shown == [encode_frame(frame) for frame in wanted]


def test_every_message_is_on_the_page() -> None:
    kinds = [kind.__struct_config__.tag for kind in get_args(MapMessage)]
    assert [kind for kind in kinds if f'"kind": "{kind}"' not in PAGE] == []
