#include <tapeformer/data/toy/lexicon.h>

namespace tapeformer::toy {
namespace {

constexpr Gender m = Gender::masculine, f = Gender::feminine;

bool ends_with(const std::string& word, const std::string& end) {
  return word.size() >= end.size() && word.compare(word.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

// clang-format off
const std::array<Noun, 16> kPeople = {{
    {"man", "men", "homme", m}, {"woman", "women", "femme", f}, {"boy", "boys", "garçon", m},
    {"girl", "girls", "fille", f}, {"child", "children", "enfant", m},
    {"teacher", "teachers", "professeur", m},
    {"doctor", "doctors", "médecin", m}, {"friend", "friends", "ami", m},
    {"neighbor", "neighbors", "voisin", m},
    {"king", "kings", "roi", m}, {"queen", "queens", "reine", f}, {"brother", "brothers", "frère", m},
    {"sister", "sisters", "sœur", f}, {"uncle", "uncles", "oncle", m}, {"aunt", "aunts", "tante", f},
    {"nurse", "nurses", "infirmière", f}}};

const std::array<Noun, 24> kThings = {{
    {"house", "houses", "maison", f}, {"car", "cars", "voiture", f}, {"letter", "letters", "lettre", f},
    {"key", "keys", "clé", f}, {"chair", "chairs", "chaise", f}, {"apple", "apples", "pomme", f},
    {"box", "boxes", "boîte", f}, {"watch", "watches", "montre", f}, {"clock", "clocks", "horloge", f},
    {"cow", "cows", "vache", f}, {"mouse", "mice", "souris", f}, {"shirt", "shirts", "chemise", f},
    {"book", "books", "livre", m}, {"hat", "hats", "chapeau", m}, {"coat", "coats", "manteau", m},
    {"boat", "boats", "bateau", m}, {"tree", "trees", "arbre", m}, {"umbrella", "umbrellas", "parapluie", m},
    {"knife", "knives", "couteau", m}, {"bag", "bags", "sac", m}, {"dog", "dogs", "chien", m},
    {"cat", "cats", "chat", m}, {"bird", "birds", "oiseau", m}, {"horse", "horses", "cheval", m}}};

const std::array<Noun, 10> kPlaces = {{
    {"garden", "gardens", "jardin", m}, {"market", "markets", "marché", m},
    {"church", "churches", "église", f},
    {"school", "schools", "école", f}, {"station", "stations", "gare", f}, {"bridge", "bridges", "pont", m},
    {"park", "parks", "parc", m}, {"castle", "castles", "château", m}, {"hotel", "hotels", "hôtel", m},
    {"library", "libraries", "bibliothèque", f}}};

const std::array<Adjective, 9> kPersonAdjectives = {{
    {"young", "younger", "jeune", "jeune", nullptr, true},
    {"old", "older", "vieux", "vieille", "vieil", true},
    {"tall", "taller", "grand", "grande", nullptr, true},
    {"rich", "richer", "riche", "riche", nullptr, false},
    {"tired", nullptr, "fatigué", "fatiguée", nullptr, false},
    {"happy", nullptr, "heureux", "heureuse", nullptr, false},
    {"sad", nullptr, "triste", "triste", nullptr, false},
    {"famous", nullptr, "célèbre", "célèbre", nullptr, false},
    {"strong", "stronger", "fort", "forte", nullptr, false}}};

const std::array<Adjective, 13> kThingAdjectives = {{
    {"big", "bigger", "grand", "grande", nullptr, true},
    {"small", "smaller", "petit", "petite", nullptr, true},
    {"old", "older", "vieux", "vieille", "vieil", true},
    {"new", nullptr, "nouveau", "nouvelle", "nouvel", true},
    {"beautiful", "more beautiful", "beau", "belle", "bel", true},
    {"ugly", "uglier", "laid", "laide", nullptr, false},
    {"heavy", "heavier", "lourd", "lourde", nullptr, false},
    {"expensive", "more expensive", "cher", "chère", nullptr, false},
    {"red", nullptr, "rouge", "rouge", nullptr, false}, {"blue", nullptr, "bleu", "bleue", nullptr, false},
    {"green", nullptr, "vert", "verte", nullptr, false}, {"black", nullptr, "noir", "noire", nullptr, false},
    {"white", nullptr, "blanc", "blanche", nullptr, false}}};

const std::array<Determiner, 16> kDefinite = {{
    {"the", "le", "la", false}, {"this", "ce", "cette", false}, {"my", "mon", "ma", false},
    {"your", "ton", "ta", false}, {"his", "son", "sa", false}, {"her", "son", "sa", false},
    {"our", "notre", "notre", false}, {"their", "leur", "leur", false}, {"every", "chaque", "chaque", false},
    {"the", "les", "les", true}, {"these", "ces", "ces", true}, {"my", "mes", "mes", true},
    {"his", "ses", "ses", true}, {"her", "ses", "ses", true}, {"our", "nos", "nos", true},
    {"their", "leurs", "leurs", true}}};

const std::array<Determiner, 12> kIndefinite = {{
    {"a", "un", "une", false}, {"some", "des", "des", true}, {"many", "beaucoup de", "beaucoup de", true},
    {"two", "deux", "deux", true}, {"three", "trois", "trois", true}, {"four", "quatre", "quatre", true},
    {"five", "cinq", "cinq", true}, {"six", "six", "six", true}, {"seven", "sept", "sept", true},
    {"eight", "huit", "huit", true}, {"nine", "neuf", "neuf", true}, {"ten", "dix", "dix", true}}};

const std::array<Determiner, 6> kPlaceDeterminers = {{
    {"the", "le", "la", false}, {"the", "les", "les", true}, {"this", "ce", "cette", false},
    {"a", "un", "une", false}, {"our", "notre", "notre", false}, {"their", "leur", "leur", false}}};

const std::array<Verb, 8> kPersonVerbs = {{
    {"see", "sees", "saw", "", "voir", {{"vois", "vois", "voit", "voyons", "voient"}}, "vu", "verr", false},
    {"find", "finds", "found", "", "trouver", {{"trouve", "trouves", "trouve", "trouvons", "trouvent"}},
     "trouvé", "trouver", false},
    {"look", "looks", "looked", "for", "chercher", {{"cherche", "cherches", "cherche", "cherchons",
     "cherchent"}},
     "cherché", "chercher", false},
    {"thank", "thanks", "thanked", "", "remercier", {{"remercie", "remercies", "remercie", "remercions",
     "remercient"}},
     "remercié", "remercier", false},
    {"follow", "follows", "followed", "", "suivre", {{"suis", "suis", "suit", "suivons", "suivent"}},
     "suivi", "suivr", false},
    {"watch", "watches", "watched", "", "regarder", {{"regarde", "regardes", "regarde", "regardons",
     "regardent"}},
     "regardé", "regarder", false},
    {"hide", "hides", "hid", "", "cacher", {{"cache", "caches", "cache", "cachons", "cachent"}},
     "caché", "cacher", false},
    {"draw", "draws", "drew", "", "dessiner", {{"dessine", "dessines", "dessine", "dessinons", "dessinent"}},
     "dessiné", "dessiner", false}}};

const std::array<Verb, 13> kThingVerbs = {{
    kPersonVerbs[0], kPersonVerbs[1], kPersonVerbs[2], kPersonVerbs[5], kPersonVerbs[6], kPersonVerbs[7],
    {"pay", "pays", "paid", "for", "payer", {{"paie", "paies", "paie", "payons", "paient"}}, "payé",
     "paier", false},
    {"sell", "sells", "sold", "", "vendre", {{"vends", "vends", "vend", "vendons", "vendent"}},
     "vendu", "vendr", false},
    {"lose", "loses", "lost", "", "perdre", {{"perds", "perds", "perd", "perdons", "perdent"}},
     "perdu", "perdr", false},
    {"carry", "carries", "carried", "", "porter", {{"porte", "portes", "porte", "portons", "portent"}},
     "porté", "porter", false},
    {"clean", "cleans", "cleaned", "", "nettoyer", {{"nettoie", "nettoies", "nettoie", "nettoyons",
     "nettoient"}},
     "nettoyé", "nettoier", false},
    {"choose", "chooses", "chose", "", "choisir", {{"choisis", "choisis", "choisit", "choisissons",
     "choisissent"}},
     "choisi", "choisir", false},
    {"take", "takes", "took", "", "prendre", {{"prends", "prends", "prend", "prenons", "prennent"}},
     "pris", "prendr", false}}};

const std::array<Verb, 4> kGivingVerbs = {{
    {"give", "gives", "gave", "", "donner", {{"donne", "donnes", "donne", "donnons", "donnent"}},
     "donné", "donner", false},
    {"show", "shows", "showed", "", "montrer", {{"montre", "montres", "montre", "montrons", "montrent"}},
     "montré", "montrer", false},
    {"lend", "lends", "lent", "", "prêter", {{"prête", "prêtes", "prête", "prêtons", "prêtent"}},
     "prêté", "prêter", false},
    kThingVerbs[7]}};

const std::array<Verb, 4> kMotionVerbs = {{
    {"go", "goes", "went", "to", "aller", {{"vais", "vas", "va", "allons", "vont"}}, "allé", "ir", true},
    {"come", "comes", "came", "to", "venir", {{"viens", "viens", "vient", "venons", "viennent"}},
     "venu", "viendr", true},
    {"return", "returns", "returned", "to", "retourner",
     {{"retourne", "retournes", "retourne", "retournons", "retournent"}}, "retourné", "retourner", true},
    {"run", "runs", "ran", "to", "courir", {{"cours", "cours", "court", "courons", "courent"}},
     "couru", "courr", false}}};

const std::array<Verb, 4> kThinkingVerbs = {{
    {"think", "thinks", "thought", "", "penser", {{"pense", "penses", "pense", "pensons", "pensent"}},
     "pensé", "penser", false},
    {"know", "knows", "knew", "", "savoir", {{"sais", "sais", "sait", "savons", "savent"}}, "su", "saur",
     false},
    {"say", "says", "said", "", "dire", {{"dis", "dis", "dit", "disons", "disent"}}, "dit", "dir", false},
    {"hope", "hopes", "hoped", "", "espérer", {{"espère", "espères", "espère", "espérons", "espèrent"}},
     "espéré", "espérer", false}}};

const std::array<Pronoun, 6> kPronouns = {{
    {"I", "je", 0, m}, {"you", "tu", 1, m}, {"he", "il", 2, m}, {"she", "elle", 2, f}, {"we", "nous", 3, m},
    {"they", "ils", 4, m}}};

const std::array<ObjectPronoun, 6> kObjectPronouns = {{
    {"me", "me", "me", m, false}, {"you", "te", "te", m, false}, {"him", "le", "lui", m, false},
    {"her", "la", "lui", f, false}, {"us", "nous", "nous", m, true}, {"them", "les", "leur", m, true}}};

const std::array<Modal, 4> kModals = {{
    {ModalKind::want, {{"veux", "veux", "veut", "voulons", "veulent"}}},
    {ModalKind::can, {{"peux", "peux", "peut", "pouvons", "peuvent"}}},
    {ModalKind::must, {{"dois", "dois", "doit", "devons", "doivent"}}},
    {ModalKind::going, {{"vais", "vas", "va", "allons", "vont"}}}}};

const std::array<std::array<TimeAdverbial, 4>, 3> kTimes = {{
    {{{"today", {{{"aujourd'hui", 0}}}}, {"every day", {{{"chaque", 0}, {"jour", 1}}}},
      {"every morning", {{{"chaque", 0}, {"matin", 1}}}}, {"every evening", {{{"chaque", 0}, {"soir", 1}}}}}},
    {{{"yesterday", {{{"hier", 0}}}}, {"this morning", {{{"ce", 0}, {"matin", 1}}}},
      {"last week", {{{"la", 1}, {"semaine", 1}, {"dernière", 0}}}},
      {"last year", {{{"l'année", 1}, {"dernière", 0}}}}}},
    {{{"tomorrow", {{{"demain", 0}}}}, {"this evening", {{{"ce", 0}, {"soir", 1}}}},
      {"next week", {{{"la", 1}, {"semaine", 1}, {"prochaine", 0}}}}, {"soon", {{{"bientôt", 0}}}}}}}};

const std::array<Preposition, 4> kPrepositions = {{
    {"behind", "derrière"}, {"near", "près de"}, {"in front of", "devant"}, {"next to", "à côté de"}}};

const std::array<Preposition, 4> kDegrees = {{{"", ""}, {"very", "très"}, {"too", "trop"},
    {"quite", "assez"}}};

const std::array<QuestionWord, 4> kQuestionWords = {{
    {"why", "pourquoi"}, {"when", "quand"}, {"where", "où"}, {"how", "comment"}}};

const Verb kBe = {"be", "is", "was", "", "être", {{"suis", "es", "est", "sommes", "sont"}}, "été", "ser",
     false};
const Forms kHave = {{"ai", "as", "a", "avons", "ont"}};
const Forms kWere = {{"étais", "étais", "était", "étions", "étaient"}};
// clang-format on

std::string french_plural(const std::string& singular) {
  if (ends_with(singular, "s") || ends_with(singular, "x")) return singular;
  if (ends_with(singular, "eau")) return singular + "x";
  if (ends_with(singular, "al")) return singular.substr(0, singular.size() - 1) + "ux";
  return singular + "s";
}

std::string agree(const std::string& masculine, Gender gender, bool plural) {
  const std::string word = gender == f ? masculine + "e" : masculine;
  return plural ? french_plural(word) : word;
}

std::string agree(const Adjective& adjective, Gender gender, bool plural) {
  const std::string word = gender == f ? adjective.feminine : adjective.masculine;
  return plural ? french_plural(word) : word;
}

}  // namespace tapeformer::toy
