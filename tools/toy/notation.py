"""Rules and words of a lexicalised grammar, read from text.

The notation is shown where it is used: `tools.toy.rules` and `tools.toy.lexicon`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import sha256
from itertools import chain
from typing import NamedTuple

from nbl.corpus.clean import is_word, normalise
from nbl.corpus.treebank import Tree, parse_trees
from nbl.sentence import bare_label

WHOLE = 10**9  # the integer that stands for probability 1 while classes and words share it out
# relation: (paradigm, relation) that it turns round: p(word | noun) is proportional to p(noun | word)
INVERSES = {"adj": ("adj", "subj"), "does": ("verb", "subj"), "undergoes": ("verb", "obj")}
ONE_FORM = {"mass": "NN", "name": "NNP", "adj": "JJ", "adv": "RB", "prep": "IN", "to": "TO", "number": "CD",
            "past": "VBD", "root": "ROOT"}  # fmt: skip


class Slot(NamedTuple):
    """A leaf of a rule that is to be expanded; without a relation, it shares the rule's head word."""

    category: str
    relation: str


@dataclass(eq=False)
class Lexeme:
    """A word: its forms by tag, its traits, and for each relation the words that fill it, with weights."""

    word_class: str
    base: str
    paradigm: str
    forms: dict[str, str]
    traits: set[str] = field(default_factory=set)
    partners: dict[str, dict[Lexeme, int]] = field(default_factory=dict, repr=False)

    @cached_property
    def surface(self) -> set[str]:
        """The forms as cleaning leaves them."""
        return {normalise(form) for form in self.forms.values()}

    def has(self, need: str) -> bool:
        """Does the word have this form, trait or relation (with `!`: does it lack it)?"""
        if need.startswith("!"):
            return not self.has(need[1:])
        return need in self.traits or need in self.forms or need in self.partners

    def spell(self, leaf: Tree) -> str:
        """The word at a leaf of a rule with this head word."""
        return self.forms[leaf.label] if leaf.word == "_" else leaf.word

    def relate(self, relation: str, weights: dict[Lexeme, int], favourites: bool) -> None:
        """Set p(. | this word, relation) from weights; with favourites, by a ranking of this word's own.

        The ranking is arbitrary but fixed (by a hash) and steep: that makes the preferences bilexical.
        """
        me = f"{self.word_class} {self.base} {relation}"
        others = [word for word in weights if word is not self]
        if favourites:
            others.sort(key=lambda word: sha256(f"{me} {word.word_class} {word.base}".encode()).digest())
        steepness = 2 if favourites else 0
        shares = [weights[word] // (rank + 1) ** steepness for rank, word in enumerate(others)]
        self.partners[relation] = {
            word: 1 + WHOLE * share // sum(shares) for word, share in zip(others, shares, strict=True)
        }


@dataclass(eq=False)
class Rule:
    """One line of RULES. The head comes from the leaf `anchor`: the head word's, else the last `=`."""

    weight: int
    needs: list[str]
    tree: Tree
    anchor: Tree | None
    slots: list[Slot]
    has_trace: bool

    def suits(self, head: Lexeme) -> bool:
        """Does the head word have all that the rule asks for, forms and relations included?"""
        return all(map(head.has, self.needs))

    def holds_anchor(self, node: Tree) -> bool:
        return any(leaf is self.anchor for leaf in node.preterminals())

    def parts(self, head: Lexeme) -> list[Slot | str]:
        """The rule with a given head word as a sequence: its slots, and the words that cleaning keeps."""
        leaves = [(leaf, slot_of(leaf)) for leaf in self.tree.preterminals()]
        return [slot or normalise(head.spell(leaf)) for leaf, slot in leaves if slot or is_word(leaf)]


def slot_of(leaf: Tree) -> Slot | None:
    """The constituent that a leaf of a rule stands for; None if it is a word."""
    return _slot(leaf.label, leaf.word) if leaf.word.startswith("=") else None


@cache
def _slot(label: str, word: str) -> Slot:
    return Slot(bare_label(label), word.removeprefix("="))


def read_rules(text: str) -> dict[str, list[Rule]]:
    """The rules by category, in the order of the text."""
    rules: dict[str, list[Rule]] = {}
    for block in re.split(r"\n+(?=\S)", text.strip()):
        header, *lines = re.split(r"\n\s+(?=\d)", block)
        names = re.findall(r"{(.*)}", header)
        for number, name in enumerate(names[0].split("|") if names else [""]):
            category = rules.setdefault(_alternative(header, number), [])
            category += [_read_rule(_alternative(line, number).replace("@", name)) for line in lines]
    return rules


def _alternative(text: str, number: int) -> str:
    """The text with each {a|b|...} replaced by the alternative of this number."""
    return re.sub(r"{(.*?)}", lambda braces: braces[1].split("|")[number], text)


def _read_rule(line: str) -> Rule:
    start = line.index("(")
    weight, *needs = line[:start].split()
    (tree,) = parse_trees(line[start:])
    leaves = list(tree.preterminals())
    slots = [slot for leaf in leaves if (slot := slot_of(leaf))]
    needs += [leaf.label for leaf in leaves if leaf.word == "_"]
    needs += [slot.relation for slot in slots if slot.relation]
    anchors = [leaf for word in ("=", "_") for leaf in leaves if leaf.word == word]
    return Rule(int(weight), needs, tree, anchors[-1] if anchors else None, slots, "#" in line)


def read_lexicon(text: str) -> list[Lexeme]:
    """The words in the order of the text, each with the words that it may be related to."""
    groups: dict[str, str] = {}
    bundles: dict[str, list[str]] = {}
    classes: dict[str, list[Lexeme]] = {}
    given: dict[Lexeme, list[str]] = {}
    for line in re.split(r"\n+(?=\S)", re.sub(r"(?m)^#.*\n", "", text).strip()):
        if " = " in line:
            name, members = line.split(" = ")
            groups[name.strip()] = ",".join(members.split())
            continue
        entry, _, rest = re.sub(r",\s+", ",", line).partition(" : ")
        name, paradigm, *words = entry.split()
        if paradigm == "bundle":
            bundles[name] = rest.split()
        for word in words:
            base, *irregular = word.split("/")
            lexeme = Lexeme(name, base, paradigm, _inflect(paradigm, base, *irregular))
            classes.setdefault(name, []).append(lexeme)
            given[lexeme] = rest.split()
    for lexeme, properties in given.items():
        for item in chain.from_iterable(bundles.get(name, [name]) for name in properties):
            if item.isidentifier():
                lexeme.traits.add(item)
                continue
            relation, sign, members = re.split("([=~])", item)
            weights = {
                word: amount // (place + 4)  # the earlier in its class, the more frequent
                for name, amount in _share(WHOLE, members, groups)
                for place, word in enumerate(classes[name])
            }
            lexeme.relate(relation, weights, favourites=sign == "=")
    for inverse, (paradigm, relation) in INVERSES.items():
        for lexeme in given:
            if lexeme.paradigm == paradigm:
                for noun, weight in lexeme.partners.get(relation, {}).items():
                    noun.partners.setdefault(inverse, {})[lexeme] = weight
    return list(given)


def _share(amount: int, members: str, groups: dict[str, str]) -> Iterator[tuple[str, int]]:
    """Divide an amount among `class:weight,class,...`, where a class may be a group of such.

    >>> list(_share(12, "people:2,dog", {"people": "man:3,woman"}))
    [('man', 6), ('woman', 2), ('dog', 4)]
    """
    pairs = [member.partition(":") for member in members.split(",")]
    weights = {name: int(weight or 1) for name, _, weight in pairs}
    for name, weight in weights.items():
        part = amount * weight // sum(weights.values())
        if name in groups:
            yield from _share(part, groups[name], groups)
        else:
            yield name, part


def _inflect(paradigm: str, base: str, *irregular: str) -> dict[str, str]:
    """The forms by tag. Listed forms are a noun's plural, or a verb's past, participle and gerund.

    >>> _inflect("noun", "city"), _inflect("verb", "ride", "rode", "ridden")["VBG"]
    ({'NN': 'city', 'NNS': 'cities'}, 'riding')
    """
    if paradigm in ONE_FORM:
        return {ONE_FORM[paradigm]: base}
    stem = re.sub(r"(?<=[^aeiou])y$", "i", base)  # citi-es, carri-ed
    if paradigm == "noun":
        regular = stem + ("es" if re.search(r"(i|s|x|z|ch|sh)$", stem) else "s")
        return {"NN": base, "NNS": irregular[0] if irregular else regular}
    past = irregular[0] if irregular else stem + ("d" if stem.endswith("e") else "ed")
    participle = irregular[1] if len(irregular) > 1 else past
    gerund = irregular[2] if len(irregular) > 2 else re.sub(r"(?<=[^e])e$", "", base) + "ing"
    return {"VB": base, "VBD": past, "VBN": participle, "VBG": gerund}
