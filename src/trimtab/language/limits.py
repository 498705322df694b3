"""The sizes that the language accepts: every one keeps time and memory for a single input bounded.

They are the same for text, JSON and Python, so that what one broker accepts every other broker accepts too. A filter
within these limits also fits when it is written in another notation and read back.
"""

from typing import Final

FILTER_TEXT_MAX_CHARS: Final = 131_072
"""A filter is typed by a person or made from a form; a longer one is a mistake or an attack."""

FILTER_SIZE_MAX_CHARS: Final = 16_384
"""Names and operands of one filter together; with every character escaped they still fit FILTER_TEXT_MAX_CHARS."""

PUBLICATION_TEXT_MAX_CHARS: Final = 1_048_576
"""One publication may carry a document, but not a file server's content."""

PREDICATES_MAX_COUNT: Final = 256
"""Predicates in one filter: matching and covering cost grows with them."""

CONJUNCTIONS_MAX_COUNT: Final = 256
"""Filters that one text with OR, IN and NOT may become."""

TEXT_PREDICATES_MAX_COUNT: Final = 4_096
"""Predicates in all filters together that one text with OR, IN and NOT becomes."""

ATTRIBUTES_MAX_COUNT: Final = 1_024
"""Attributes in one publication."""

NAME_MAX_CHARS: Final = 256
"""Characters in an attribute's name."""

OPERAND_MAX_CHARS: Final = 4_096
"""Characters in a string that a filter compares with."""

PATTERN_MAX_CHARS: Final = 256
"""Characters and wildcards in a pattern that is more than a prefix, a suffix, a part or a whole text."""

STRING_MAX_CHARS: Final = 1_048_576
"""Characters in a publication's string value."""

NESTING_MAX_DEPTH: Final = 64
"""Parentheses and NOTs inside one another."""

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1
"""Integers are signed 64-bit numbers, as in every store and wire format that alerts come from."""

STRING_SEARCH_MAX_STEPS: Final = 300_000
"""Steps that one question may spend on the exact decision about strings before it is answered on the safe side."""

MESSAGE_MAX_STEPS: Final = 10_000
"""Such steps that all questions about one message, or one frame that is read, may take together: some milliseconds."""

LINK_MAX_STEPS: Final = 100_000
"""The same when a link begins or ends, and everything is looked through."""

RELATION_MAX_STEPS: Final = 60_000
"""Constraints that the exact comparison of two OR-texts may visit before it gives up with a LimitError."""
