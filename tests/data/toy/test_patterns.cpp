#include <doctest/doctest.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/toy/grammar.h>
#include <tapeformer/data/toy/patterns.h>
#include <tapeformer/tests/reference/seed.h>

#include <unordered_set>

using namespace tapeformer;

namespace {

/// The digits that a pattern takes.
toy::Digits digits_of(const toy::Pattern& pattern, Index number = 0) {
  toy::Digits digits(number);
  toy::Sentence sentence;
  pattern.say(digits, sentence);
  return digits;
}

}  // namespace

TEST_SUITE("data/toy/patterns") {
  TEST_CASE("a pattern makes the same choices whatever the number, so its numbers are all sentences") {
    for (const toy::Pattern& pattern : toy::kPatterns) {
      const toy::Digits first = digits_of(pattern);
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const auto number =
            static_cast<Index>(bounded(mix_bits(test_seed(1), i), static_cast<std::uint64_t>(first.size())));
        const toy::Digits other = digits_of(pattern, number);
        REQUIRE(other.count() == first.count());
        for (int k = 0; k < first.count(); ++k) REQUIRE(other.radix(k) == first.radix(k));
      }
    }
  }

  TEST_CASE("every combination of first, second, middle and last choices is a different English sentence") {
    const ToyGrammar grammar;
    std::unordered_set<std::uint64_t> seen;
    std::size_t count = 0;
    Index start = 0;
    for (const toy::Pattern& pattern : toy::kPatterns) {
      const toy::Digits digits = digits_of(pattern);
      std::vector<Index> numbers = {start};
      Index place = 1;
      for (int k = 0; k < digits.count(); ++k) {
        const Index radix = digits.radix(k);
        std::unordered_set<Index> choices = {0, radix / 2, radix - 1};
        if (k < 3) choices.insert(1);
        std::vector<Index> extended;
        for (const Index choice : choices) {
          for (const Index number : numbers) extended.push_back(number + choice * place);
        }
        numbers = std::move(extended);
        place *= radix;
      }
      count += numbers.size();
      for (const Index number : numbers) seen.insert(hash_text(grammar.pair(number).source));
      start += digits.size();
    }
    CHECK(start == grammar.size());
    CHECK(count > 200000);
    CHECK(seen.size() == count);
  }

  TEST_CASE("a random sentence of every pattern, read and found right") {
    const std::vector<TextPair> expected = {
        {"They never take my blue umbrella.", "Ils ne prennent jamais mon parapluie bleu."},
        {"You will sell their old blue cows.", "Tu vendras leurs vieilles vaches bleues."},
        {"You will always see these sad doctors.", "Tu verras toujours ces médecins tristes."},
        {"Her boy did not thank our strong brothers.", "Son garçon n'a pas remercié nos frères forts."},
        {"Their neighbor often watches some mice today.",
         "Aujourd'hui, leur voisin regarde souvent des souris."},
        {"She will not hide you in front of a library this evening.",
         "Ce soir, elle ne te cachera pas devant une bibliothèque."},
        {"His aunt often follows us today.", "Aujourd'hui, sa tante nous suit souvent."},
        {"She often gave her her beautiful boats.", "Elle lui a souvent donné ses beaux bateaux."},
        {"He will lend her cows to every famous girl.", "Il prêtera ses vaches à chaque fille célèbre."},
        {"They must watch many green birds.", "Ils doivent regarder beaucoup d'oiseaux verts."},
        {"She must look for him next to this library.",
         "Elle doit le chercher à côté de cette bibliothèque."},
        {"Why did they hide his expensive apple?", "Pourquoi ont-ils caché sa pomme chère ?"},
        {"Will every man often draw me next to our castle?",
         "Est-ce que chaque homme me dessinera souvent à côté de notre château ?"},
        {"Their child's big box is quite expensive.", "La grande boîte de leur enfant est assez chère."},
        {"Every blue horse was older than her birds.",
         "Chaque cheval bleu était plus vieux que ses oiseaux."},
        {"There will be six expensive cars behind their hotel.",
         "Il y aura six voitures chères derrière leur hôtel."},
        {"She never runs to the small school every morning.",
         "Chaque matin, elle ne court jamais à la petite école."},
        {"His aunt who carried five letters is quite happy.",
         "Sa tante qui a porté cinq lettres est assez heureuse."},
        {"The beautiful tree that I drew is too green.", "Le bel arbre que j'ai dessiné est trop vert."},
        {"She will clean their clock because it is very ugly.",
         "Elle nettoiera leur horloge parce qu'elle est très laide."},
        {"They know that their brothers lost his knife.",
         "Ils savent que leurs frères ont perdu son couteau."},
    };
    const ToyGrammar grammar;
    Index start = 0, pattern = 0;
    for (const TextPair& pair : expected) {
      const Index size = digits_of(toy::kPatterns[static_cast<std::size_t>(pattern++)]).size();
      const std::uint64_t random = mix_bits(test_seed(3), static_cast<std::uint64_t>(start));
      const Index number = start + static_cast<Index>(bounded(random, static_cast<std::uint64_t>(size)));
      CHECK(grammar.pair(number).source == pair.source);
      CHECK(grammar.pair(number).target == pair.target);
      start += size;
    }
    CHECK(pattern == toy::kPatternCount);
  }
}
