"""Finding the filters that a publication satisfies, and keeping the set of filters that cover all others."""

from trimtab.matching.brute_force import BruteForceMatcher
from trimtab.matching.covering import CoveringChange, CoveringSet
from trimtab.matching.index import Matches
from trimtab.matching.matcher import Matcher

__all__ = ["BruteForceMatcher", "CoveringChange", "CoveringSet", "Matcher", "Matches"]
