"""Awkward text for byte-level BPE, the same on every machine, and how the published tokenizers cut it."""

import json
import random
import unicodedata

import regex
import tiktoken

PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
WHITE_SPACE = " \n\t\r\v\f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000"
NEARLY_SPACE = "\x1c\x1f\u200b\u200d\u2060\ufeff\u180e"
PIECES = [
    *"aZzßéÅ日本語한글नമ\u0301\u0327",
    *"'’’'\"!?.,;:-—…()[]{}<>@#$%^&*_+=|\\/~`",
    *"0123456789½²Ⅷ٣৩㊿𝟘",
    *WHITE_SPACE,
    *NEARLY_SPACE,
    *["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'RE", "’s", "'r", "'v", "'l", "''s", " 's", "'s's", "s'"],
    *["  ", "   ", "\n\n", "\r\n", " \n", "\n ", " \u00a0", "\u00a0 ", "\t\t\t", " " * 17, "\n" * 9],
    *["👩\u200d👩\u200d👧\u200d👦", "👍🏽", "🇫🇷", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "❤\ufe0f\u200d🔥", "#\ufe0f⃣"],
    *["\x00", "\x07", "\x1b[31m", "\x7f", "\x80", "\x9f", "\xad", "\ufffd", "\ufffe", "\uffff", "\U0001fffe", "\U0010ffff"],
    *["\ue000", "\U000f0000", "𐍈𐌰", "𓀀", "𝔘𝔫𝔦", "𠜎𠜱", "Ž\u030c", "ǆ", "ŉ", "ﬁ", "İi̇ı"],
    *["the", " the", "The", " and", "ing", " don't", "you'll", "I'VE", "<|endoftext|>", "aaaaaaaa", "hello", " world"],
]
INVALID = [b"\x80", b"\xbf", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf5", b"\xff"]
ASSIGNED = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000 and unicodedata.category(chr(p)) != "Cn"]


def random_text(generator):
    """Up to a dozen pieces; a quarter of them any assigned character, so all planes come up."""
    pieces = []
    for _ in range(generator.randrange(1, 13)):
        if generator.random() < 0.25:
            pieces.append(chr(generator.choice(ASSIGNED)))
        else:
            pieces.append(generator.choice(PIECES))
    return "".join(pieces)


def random_bytes(generator):
    """Text with bytes in it that are not UTF-8, or cut off within a character. Bytes that happen to spell a character
    which Unicode 14 does not assign are thrown away: the regex module may know it from a later version."""
    while True:
        data = bytearray(random_text(generator).encode())
        for _ in range(generator.randrange(1, 4)):
            place = generator.randrange(len(data) + 1)
            data[place:place] = generator.choice(INVALID)
        data = bytes(data[generator.randrange(2) :])
        if all(unicodedata.category(c) != "Cn" for c in data.decode("utf-8", errors="ignore")):
            return data


def byte_characters():
    """GPT-2's characters for bytes: those that can be seen are themselves, the others start at U+0100."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return {**{chr(b): b for b in seen}, **{chr(0x100 + i): b for i, b in enumerate(unseen)}}


def load_tiktoken(vocabulary_path):
    """tiktoken's encoding with the ids of a vocabulary file: a token's id is its rank."""
    characters = byte_characters()
    vocabulary = json.load(open(vocabulary_path, encoding="utf-8"))
    end = vocabulary.pop("<|endoftext|>")
    ranks = {bytes(characters[c] for c in token): id for token, id in vocabulary.items()}
    return tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": end})


def encode_bytes(encoding, data):
    """The published tokenizers take text. A byte that is not UTF-8 becomes a lone surrogate here, which \\p{L}, \\p{N}
    and \\s do not match either; the pieces go back to bytes before their pairs are merged."""
    text = data.decode("utf-8", errors="surrogateescape")
    ids = []
    for piece in regex.findall(PATTERN, text):
        ids += encoding._encode_single_piece(piece.encode("utf-8", errors="surrogateescape"))
    return ids
