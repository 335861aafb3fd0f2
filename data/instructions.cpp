#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/shape.h>
#include <tapeformer/data/instructions.h>
#include <tapeformer/data/tokenizers/json/read_json.h>

#include <fstream>

namespace tapeformer {

std::vector<Instruction> read_instructions(const std::vector<std::string>& paths) {
  std::vector<Instruction> all;
  for (const std::string& path : paths) {
    std::ifstream file(path);
    std::string line;
    for (Index number = 1; std::getline(file, line); ++number) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const auto object = reading_json(format("{}:{}", path, number), "is not an instruction",
                                       [&] { return parse_json<nlohmann::json>(line, "it"); });
      const char* const answer = object.contains("completion") ? "completion" : "answer";
      const auto is_text = [&](const char* key) { return object.contains(key) && object[key].is_string(); };
      if (!is_text("prompt") || !is_text(answer))
        throw DataError(path, number, "is not an instruction, {\"prompt\": \"...\", \"answer\": \"...\"}");
      all.push_back({object["prompt"], object[answer]});
    }
    if (!file.eof()) throw DataError(path, 0, "cannot be read as a file of instructions");
  }
  return all;
}

}  // namespace tapeformer
