#!/usr/bin/env python3
"""Writes data/tokenizers/unicode_classes.cpp: which code points are letters, numbers and white space to byte-level BPE.

Asks tiktoken, code point by code point, whether \\p{L}, \\p{N} and \\s match, and stops if the tokenizers package or, for
code points that Unicode 14 assigns, the regex module sees one of them differently. Needs Python 3.11 (Unicode 14),
tiktoken, tokenizers and regex; run clang-format on the result. Versions that made the committed file: VERSIONS below.
"""

import pathlib
import unicodedata

import regex
import tiktoken
from tokenizers import pre_tokenizers

VERSIONS = "tiktoken 0.14.0, tokenizers 0.23.3, regex 2026.11.15"
CLASSES = {"letter": r"\p{L}", "number": r"\p{N}", "space": r"\s"}
POINTS = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]


def matched(pattern):
    """The code points that tiktoken finds with `pattern`: of what nothing matches it makes no tokens."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding("bytes", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return {point for point in POINTS if encoding.encode_ordinary(chr(point))}


def class_in_tokenizers(splitter, point):
    """A character goes together with others of its class."""
    for name, other in (("letter", "a"), ("number", "1"), ("other", "!")):
        if len(splitter.pre_tokenize_str(other + chr(point))) == 1:
            return name
    return "space"


def ranges(points):
    found = []
    for point in sorted(points):
        if found and found[-1][1] == point - 1:
            found[-1][1] = point
        else:
            found.append([point, point])
    return found


def check(classes):
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    class_of = {point: name for name, points in classes.items() for point in points}
    for point in POINTS:
        name = class_of.get(point, "other")
        assert class_in_tokenizers(splitter, point) == name, hex(point)
        if unicodedata.category(chr(point)) != "Cn":
            for other, pattern in CLASSES.items():
                assert bool(regex.match(pattern, chr(point))) == (other == name), hex(point)


def main():
    classes = {name: matched(pattern) for name, pattern in CLASSES.items()}
    check(classes)
    lines = [
        "// Made by tests/golden/make_unicode_classes.py with " + VERSIONS + ".",
        "#include <tapeformer/data/tokenizers/unicode_classes.h>",
        "",
        "#include <vector>",
        "",
        "namespace tapeformer {",
        "namespace {",
        "",
        "struct Range {",
        "  char32_t first, last;",
        "};",
        "",
    ]
    for name, points in classes.items():
        pairs = ", ".join("{0x%x, 0x%x}" % tuple(pair) for pair in ranges(points))
        lines += ["constexpr Range k%ss[] = {%s};" % (name.capitalize(), pairs), ""]
    lines += [
        "std::vector<CharacterClass> make_classes() {",
        "  std::vector<CharacterClass> classes(0x110000, CharacterClass::other);",
        "  const auto fill = [&](const auto& ranges, CharacterClass kind) {",
        "    for (const Range& range : ranges) {",
        "      for (char32_t point = range.first; point <= range.last; ++point) classes[point] = kind;",
        "    }",
        "  };",
    ]
    lines += [f"  fill(k{name.capitalize()}s, CharacterClass::{name});" for name in classes]
    lines += [
        "  return classes;",
        "}",
        "",
        "}  // namespace",
        "",
        "CharacterClass character_class(char32_t code_point) {",
        "  static const std::vector<CharacterClass> classes = make_classes();",
        "  return classes[code_point];",
        "}",
        "",
        "}  // namespace tapeformer",
    ]
    path = pathlib.Path(__file__).parents[2] / "data" / "unicode_classes.cpp"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
