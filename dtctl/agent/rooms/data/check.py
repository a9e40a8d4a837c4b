"""Checks whether the data set of `data push` is there, by sizes and times."""

from __future__ import annotations

from ...run import environment
from .dataset import DataSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...conversation import Conversation
    from .records import DataFacts, DataQuestion


def data_facts(talk: Conversation, question: DataQuestion) -> DataFacts:
    directories = environment.Marks(None).expand(question["dirs"])
    return {"at": [DataSet(talk.root, path).held(asked) for asked, path in zip(question["dirs"], directories)]}
