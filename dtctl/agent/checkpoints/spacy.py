"""Directories of spaCy, such as the `model-best` and `model-last` of `spacy train`: a pipeline without its optimizer.

`meta.json` and `config.cfg` come first, a directory for each component follows, and `vocab` is written last
(spacy/language.py, Language.to_disk). No name has a step.
"""

from __future__ import annotations

from .trees import INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from .trees import Names, Tree

META, CONFIG, VOCAB = "meta.json", "config.cfg", "vocab"
LAST = "vocab/strings.json"
NO_CHECKSUMS = "spaCy's files have no checksums: only their presence was checked"


def recognises(name: str, names: Names) -> bool:
    return names.has(META) and names.has(CONFIG) and (names.has(VOCAB) or names.has("tokenizer"))


def step(name: str, tree: Tree) -> Optional[int]:
    return None


def problem(name: str, tree: Tree) -> Optional[str]:
    meta = tree.json(META) if META in tree.sizes else None
    if not isinstance(meta, dict):
        return "%s is damaged" % META
    if LAST not in tree.sizes:
        return "%s is missing: %s" % (LAST, INTERRUPTED)
    if tree.json(LAST) is None:
        return "%s is damaged" % LAST
    empty = next((path for path in sorted(tree.sizes) if path.endswith("/model") and not tree.sizes[path]), None)
    return tree.problem() if empty is None else "%s is empty" % empty
