#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tapeformer {

/// tests/golden/byte_pair.json: what tiktoken and tokenizers make of awkward strings.
struct BytePairGolden {
  struct Case {
    std::string bytes;
    std::vector<std::int32_t> ids;
  };
  std::string text;  // which the merges were learnt from
  std::string vocabulary, merges;
  std::vector<Case> cases;
};

inline const BytePairGolden& byte_pair_golden() {
  static const BytePairGolden all = [] {
    std::ifstream file(TAPEFORMER_SOURCE_DIR "/tests/golden/byte_pair.json");
    const auto json = nlohmann::json::parse(file);
    BytePairGolden golden{json["text"], json["vocabulary"], json["merges"], {}};
    for (const auto& entry : json["cases"]) {
      const std::string digits = entry[0];
      BytePairGolden::Case one{{}, entry[1]};
      for (std::size_t i = 0; i < digits.size(); i += 2) {
        one.bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
      }
      golden.cases.push_back(std::move(one));
    }
    return golden;
  }();
  return all;
}

}  // namespace tapeformer
