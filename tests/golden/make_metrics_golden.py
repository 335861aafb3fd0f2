#!/usr/bin/env python3
"""Makes metrics.json: hypotheses and references with the BLEU and chrF that sacreBLEU gives them.

Needs sacrebleu (2.6.0 made the committed file); run it from anywhere. The tests need the JSON only.
"""

import json
import pathlib
import random

import sacrebleu
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

SUBJECTS = ["le roi", "ma sœur", "un vieil ami", "Marie", "l'infirmière", "nous", "le n° 7", "M. Dupont", "l'été"]
VERBS = ["a vu", "n'a pas trouvé", "cherchera", "vend", "veut-elle", "préfère", "paie 3,50 € pour", "dit : «"]
OBJECTS = ["la clé rouge", "deux chevaux", "1 234,5 km", "l'arbre", "un U.R.L.", "le garçon & la fille", "tout ça"]
TAILS = [".", " !", "\u202f!", "\u00a0?", "…", " aujourd'hui.", " (vraiment).", " à 10h30.", ", n'est-ce pas ?", " »."]

AWKWARD = [  # hypothesis, reference
    ("Hello, world!", "Hello world!"),
    ("It costs $3.50, not 3,500.00.", "It costs $3.50 , not 3,500.00 ."),
    ("The U.S.A. won 3-2 (again).", "The U.S.A. won 3 - 2 (again)."),
    ("rock'n'roll isn't dead...", "rock 'n' roll isn't dead …"),
    ("&quot;Tom &amp; Ann&quot; &lt;tag&gt;", '"Tom & Ann" <tag>'),
    ("a<skipped>b 100-", "ab 100 -"),
    ("naïve café — déjà-vu", "naive cafe - déjà vu"),
    ("Où est-il\u202f? Là\u00a0!", "Où est-il ? Là !"),
    ("日本語のテキスト。", "日本語テキスト。"),
    ("emoji 😀😀 test", "emoji 😀 test"),
    ("1.5.2 ,5 5, .5 5.", "1.5.2 , 5 5 , .5 5 ."),
    ("a.b,c a..b ,, .. é.è 5.é é,5", "a . b , c a . . b"),
    ("{x} [y] (z) |w| ~v~ `u` ^t^ _s_", "{ x } [ y ] ( z ) | w | ~ v ~"),
    ("C++17: a/b\\c @home #1 *x* 50% = 1/2; ok?", "C++ 17 : a / b c"),
    ("tab\tand  two   spaces ", " tab and two spaces"),
    ("", "an empty hypothesis"),
    ("an empty reference is not one", "x"),
    ("ab", "abcdef"),
]


def synthetic(generator):
    return " ".join(map(generator.choice, (SUBJECTS, VERBS, OBJECTS))) + generator.choice(TAILS)


def damaged(sentence, generator):
    """The sentence after up to four random edits, now and then another one or nothing."""
    if generator.random() < 0.05:
        return "" if generator.random() < 0.5 else synthetic(generator)
    words = sentence.split(" ")
    for _ in range(generator.randrange(5)):
        place = generator.randrange(len(words))
        kind = generator.randrange(4)
        if kind == 0 and len(words) > 1:
            del words[place]
        elif kind == 1:
            words.insert(place, generator.choice(words))
        elif kind == 2:
            words[place] = words[place][::-1]
        else:
            generator.shuffle(words)
    return " ".join(words)


def case(name, hypotheses, references):
    bleu = BLEU().corpus_score(hypotheses, [references])
    return {
        "name": name,
        "hypotheses": hypotheses,
        "references": references,
        "bleu": bleu.score,
        "precisions": bleu.precisions,
        "brevity_penalty": bleu.bp,
        "hypothesis_length": bleu.sys_len,
        "reference_length": bleu.ref_len,
        "chrf": CHRF().corpus_score(hypotheses, [references]).score,
    }


def main():
    generator = random.Random(2024)
    references = [synthetic(generator) for _ in range(300)]
    hypotheses = [damaged(reference, generator) for reference in references]
    cases = [case(f"awkward {i}", [hypothesis], [reference]) for i, (hypothesis, reference) in enumerate(AWKWARD)]
    cases += [
        case("all awkward", [h for h, _ in AWKWARD], [r for _, r in AWKWARD]),
        case("identical", references[:20], references[:20]),
        case("nothing in common", ["aaa bbb", "ccc"], ["xyz", "uvw tt"]),
        case("short sentences", ["Oui .", "Non", "a b c"], ["Oui.", "Non !", "a b d"]),
        case("all empty", ["", ""], ["a b", "c"]),
        case("too long", [r + " et plus encore" for r in references[:30]], references[:30]),
        case("too short", [r[: len(r) // 2] for r in references[:30]], references[:30]),
        case("synthetic", hypotheses, references),
    ]
    tokenizer = Tokenizer13a()
    tokens = [{"line": line, "tokens": tokenizer(line.rstrip()).split()} for line in sum(map(list, AWKWARD), [])]
    listed = lambda entries: "[\n" + ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries) + "\n]"
    text = f'{{\n"sacrebleu": "{sacrebleu.__version__}",\n"cases": {listed(cases)},\n"tokens": {listed(tokens)}\n}}\n'
    path = pathlib.Path(__file__).with_name("metrics.json")
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
