#include <tapeformer/autograd/format.h>
#include <tapeformer/data/instructions.h>
#include <tapeformer/data/parallel_corpus.h>
#include <tapeformer/data/tokenizers/json/read_json.h>

namespace tapeformer {

std::vector<Instruction> read_instructions(const std::vector<std::string>& paths) {
  const std::string problem =
      R"(is not an instruction, {"prompt": "...", "answer": "..."}, which --loss-on answers needs)";
  std::vector<Instruction> all;
  for (const std::string& path : paths) {
    LineReader lines(path);
    for (std::string line; lines.next(line);) {
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      const auto object = reading_json(format("{}:{}", path, lines.number()), problem,
                                       [&] { return parse_json<nlohmann::json>(line, "it"); });
      const char* const answer = object.contains("completion") ? "completion" : "answer";
      const auto is_text = [&](const char* key) { return object.contains(key) && object[key].is_string(); };
      if (!is_text("prompt") || !is_text(answer)) throw DataError(path, lines.number(), problem);
      all.push_back({object["prompt"], object[answer]});
    }
  }
  if (all.empty() && !paths.empty()) throw DataError(joined(paths, ", "), 0, "holds no instructions");
  return all;
}

}  // namespace tapeformer
