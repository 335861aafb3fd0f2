// What reads files of other people, by the size of the file: seconds of processor time for each input, and
// how many times as many as for the one before. Where that is four times as large, four is linear. What holds
// one entry a line or name in a table grows by more up to some 16 MB, until none of the table is in a cache:
// nanoseconds a byte show that they level off.
// Usage: bench parsing [PARSER...] [--megabytes N...]
#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/tests/bench/bench.h>
#include <tapeformer/tests/bench/clock.h>
#include <tapeformer/tests/fuzz/parsers.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

using namespace tapeformer;

namespace {

/// The i-th text of `part` is appended until there are about that many bytes.
template <class Part>
std::string repeated(std::size_t bytes, const Part& part) {
  std::string text;
  text.reserve(bytes + 100);
  for (std::size_t i = 0; text.size() < bytes; ++i) text += part(std::to_string(i), i == 0 ? "" : ",");
  return text;
}

/// "0":"x","1":"x",...
std::string fields(std::size_t bytes, const char* value = "\"x\"") {
  return repeated(
      bytes, [=](const std::string& i, const char* comma) { return comma + ("\"_" + i + "\":") + value; });
}

std::string with_header(std::string header, std::size_t data_bytes) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 255);
  bytes += header;
  bytes.resize(bytes.size() + data_bytes);
  return bytes;
}

std::string tensors(std::size_t bytes, const std::string& prefix = "t") {
  return repeated(bytes, [&](const std::string& i, const char* comma) {
    return comma + ("\"" + prefix + i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  });
}

/// A tensor with that many axes of one element.
std::string axes(std::size_t bytes) {
  const auto one = [](const std::string&, const char* comma) { return comma + std::string("1"); };
  return with_header(R"({"t":{"dtype":"U8","data_offsets":[0,1],"shape":[)" + repeated(bytes, one) + "]}}",
                     1);
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  if (at == std::string::npos) throw Error("[bench] no " + what + " in a seed");
  return text.replace(at, what.size(), by);
}

/// The first seed, with more fields than its parser knows at the end of the object.
std::string with_fields(const char* parser, std::size_t bytes) {
  const std::string seed = parser_named(parser).seeds().front();
  return seed.substr(0, seed.rfind('}')) + "," + fields(bytes) + "}";
}

/// Words of four letters and how they are merged, after those of the seed.
std::string byte_pairs(std::size_t bytes) {
  const std::vector<std::string> files = separated(parser_named("byte_pairs").seeds().front(), 2);
  constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  constexpr std::size_t kCount = sizeof kLetters - 1, kPairs = kCount * kCount;
  const auto pair = [&](std::size_t i) { return std::string{kLetters[i / kCount], kLetters[i % kCount]}; };
  std::string vocabulary = "{", merges;
  std::size_t id = 0;
  const auto add = [&](const std::string& token) {
    vocabulary += (id == 0 ? "\"" : ",\"") + token + "\":" + std::to_string(id);
    ++id;
  };
  const std::string& known = files[1];
  for (std::size_t at = 0, token = 0; token < 256; ++token) {  // the bytes' names, which stand first
    at = known.find('"', at);
    std::size_t end = at + 1;
    while (known[end] != '"') end += known[end] == '\\' ? 2 : 1;
    add(known.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  for (std::size_t i = 0; i < kPairs; ++i) {
    merges += pair(i).substr(0, 1) + " " + pair(i).substr(1) + "\n";
    add(pair(i));
  }
  for (std::size_t i = 0; vocabulary.size() + merges.size() < bytes; ++i) {
    const std::string left = pair(i / kPairs), right = pair(i % kPairs);
    merges += left + " " + right + "\n";
    add(left + right);
  }
  return joined({merges, vocabulary + "}"});
}

/// SentencePiece's protocol buffer: pieces of a text and a score.
std::string pieces(std::size_t bytes) {
  const std::string seed = parser_named("sentencepiece").seeds().front();
  return repeated(bytes,
                  [](const std::string& i, const char*) {
                    const std::string piece = "p" + i;
                    std::string field{'\x0a', static_cast<char>(piece.size())};
                    field += piece + std::string("\x15\0\0\0\0", 5);
                    return std::string{'\x0a', static_cast<char>(field.size())} + field;
                  }) +
         seed;
}

struct Input {
  const char *parser, *about;
  std::function<std::string(std::size_t bytes)> make;
};

const std::vector<Input>& inputs() {
  const auto lines = [](const char* line) {
    return [line](std::size_t bytes) {
      return repeated(bytes, [line](const std::string& i, const char*) { return i + line; });
    };
  };
  static const std::vector<Input> kInputs{
      {"safetensors", "data",
       [](std::size_t n) {
         return with_header(R"({"t":{"dtype":"F16","shape":[)" + std::to_string(n / 2) +
                                R"(],"data_offsets":[0,)" + std::to_string(n / 2 * 2) + "]}}",
                            n / 2 * 2);
       }},
      {"safetensors", "tensors", [](std::size_t n) { return with_header("{" + tensors(n) + "}", 0); }},
      {"safetensors", "axes of one tensor", axes},
      {"safetensors", "metadata",
       [](std::size_t n) { return with_header("{\"__metadata__\":{" + fields(n) + "}}", 0); }},
      {"sharded_index", "names in the index",
       [](std::size_t n) {
         const auto files = separated(parser_named("sharded_index").seeds().front(), 3);
         return joined({replaced(files[0], "\"a\"", fields(n, "\"one.safetensors\"") + ",\"a\""),
                        with_header("{" + replaced(tensors(n), "\"t0", "\"a"), 0), files[2]});
       }},
      {"token_file", "ids",
       [](std::size_t n) {
         std::string bytes = parser_named("token_file").seeds().front().substr(0, 64) + std::string(n, '\0');
         constexpr std::size_t kSizeAt = 24;  // of the number of ids, two bytes each
         for (std::size_t i = 0; i < 8; ++i) bytes[kSizeAt + i] = static_cast<char>(n / 2 >> (8 * i) & 255);
         return bytes;
       }},
      {"checkpoint", "tensors that the model does not have",
       [](std::size_t n) {
         return with_header(
             R"({"__metadata__":{"state":"{}","model_counters":"{}","optimizer_counters":"{}"},)" +
                 tensors(n, "model.t") + "}",
             0);
       }},
      {"metrics", "lines", lines(":{\"step\":1,\"loss\":2}\n")},
      {"metrics", "fields of a line", [](std::size_t n) { return "{" + fields(n) + "}\n"; }},
      {"config", "fields", [](std::size_t n) { return with_fields("config", n); }},
      {"config", "names of corpora",
       [](std::size_t n) {
         const auto name = [](const std::string& i, const char* comma) { return comma + ("\"" + i + "\""); };
         return replaced(parser_named("config").seeds().front(), "\"corpus\": [",
                         "\"corpus\": [" + repeated(n, name) + ",");
       }},
      {"gpt2_config", "fields", [](std::size_t n) { return with_fields("gpt2_config", n); }},
      {"llama_config", "fields", [](std::size_t n) { return with_fields("llama_config", n); }},
      {"meta_params", "fields", [](std::size_t n) { return with_fields("meta_params", n); }},
      {"vocabulary", "pieces",
       [](std::size_t n) {
         const auto piece = [](const std::string& i, const char* comma) { return comma + ("\"" + i + "\""); };
         return write_tokenizer_file("word", "[" + repeated(n, piece) + "]");
       }},
      {"text_tokenizer", "characters, one of them wrong",
       [](std::size_t n) { return write_tokenizer_file("character", std::string(n, 'a')); }},
      {"byte_pairs", "tokens and merges", byte_pairs},
      {"byte_pairs", "one token",
       [](std::size_t n) {
         const auto files = separated(parser_named("byte_pairs").seeds().front(), 2);
         return joined({files[0], replaced(files[1], "\"<|endoftext|>", "\"" + std::string(n, 'x'))});
       }},
      {"tokenizer_json", "tokens and merges",
       [](std::size_t n) {
         const auto files = separated(byte_pairs(n), 2);
         std::string merges;
         for (std::size_t at = 0; at < files[0].size();) {
           const std::size_t end = files[0].find('\n', at);
           merges += (at == 0 ? "\"" : ",\"") + files[0].substr(at, end - at) + "\"";
           at = end + 1;
         }
         return R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"model":{"merges":[)" +
                merges + R"(],"vocab":)" + files[1] + "}}";
       }},
      {"sentencepiece", "pieces", pieces},
      {"tab_separated", "lines", lines(" a\tb\n")},
      {"tab_separated", "one line", [](std::size_t n) { return "a\t" + std::string(n, 'b'); }},
      {"tab_separated", "words of one line",
       [](std::size_t n) {
         return "a\t" + repeated(n, [](const std::string& i, const char*) { return " " + i; });
       }},
      {"line_aligned", "lines",
       [lines](std::size_t n) {
         const std::string half = lines(" a\n")(n / 2);
         return joined({half, half});
       }},
      {"corpus", "lines", lines(" is a number.\n")},
      {"corpus", "one word", [](std::size_t n) { return std::string(n, 'x'); }},
  };
  return kInputs;
}

/// Processor seconds of reading it: the least of three where it is short, for others use the caches too.
double seconds_of(const Parser& parser, const std::string& bytes, bool& accepted) {
  constexpr double kLong = 1;
  double least = 0, sum = 0;
  for (int i = 0; i < 3 && sum < kLong; ++i) {
    const double begun = processor_seconds();
    accepted = accepts(parser, bytes);
    const double seconds = processor_seconds() - begun;
    least = i == 0 ? seconds : std::min(least, seconds);
    sum += seconds;
  }
  return least;
}

}  // namespace

int tapeformer::bench_parsing(int argc, char** argv) {
  std::vector<std::string> names;
  std::vector<Index> megabytes{1, 4, 16, 64};
  const CommandLine line("What reads files of other people, by the size of the file.");
  line.option("parser", names, "of the table in tests/fuzz/parsers.cpp; without any, all");
  line.option("--megabytes", megabytes);
  if (!line.read(argc, argv)) return 0;
  for (const Input& input : inputs()) {
    if (!names.empty() && std::find(names.begin(), names.end(), input.parser) == names.end()) continue;
    std::printf("%-16s %-36s", input.parser, input.about);
    double before = 0;
    for (const Index size : megabytes) {
      const std::string bytes = input.make(static_cast<std::size_t>(size) << 20);
      bool accepted = false;
      const double seconds = seconds_of(parser_named(input.parser), bytes, accepted);
      std::printf("  %lld MB %.3f s%s, %.0f ns a byte", static_cast<long long>(size), seconds,
                  accepted ? "" : " refused", seconds / static_cast<double>(bytes.size()) * 1e9);
      if (before > 0) std::printf(" (x %.1f)", seconds / before);
      std::fflush(stdout);
      before = seconds;
    }
    std::printf("\n");
  }
  return 0;
}
