#include <tapeformer/tests/fuzz/parsers.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>

// The entry points of libFuzzer:
//   fuzz PARSER [libFuzzer's own arguments]
//   fuzz PARSER --seeds FOLDER    writes the seeds there
//   fuzz --list                   prints the parsers' names
namespace {

const tapeformer::Parser* chosen = nullptr;

/// Names the parser to the processes that libFuzzer starts: they get only its own arguments.
constexpr const char* kParser = "TAPEFORMER_FUZZ_PARSER";

[[noreturn]] void write_seeds(const std::string& folder) {
  int number = 0;
  for (const std::string& seed : chosen->seeds())
    std::ofstream(folder + "/seed" + std::to_string(number++), std::ios::binary) << seed;
  std::exit(0);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc > 1 && std::strcmp((*argv)[1], "--list") == 0) {
    for (const tapeformer::Parser& parser : tapeformer::parsers()) std::puts(parser.name);
    std::exit(0);
  }
  const char* const inherited = std::getenv(kParser);
  const bool started_by_libfuzzer = inherited != nullptr && *argc > 1 && (*argv)[1][0] == '-';
  const std::string name = started_by_libfuzzer ? inherited : *argc > 1 ? (*argv)[1] : "";
  try {
    chosen = &tapeformer::parser_named(name);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz: %s\n", error.what());
    std::exit(2);
  }
  if (*argc > 3 && std::strcmp((*argv)[2], "--seeds") == 0) write_seeds((*argv)[3]);
  if (started_by_libfuzzer) return 0;
  setenv(kParser, name.c_str(), 1);
  // libFuzzer would take the name for a folder of inputs.
  std::copy(*argv + 2, *argv + *argc, *argv + 1);
  --*argc;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  tapeformer::accepts(*chosen, {reinterpret_cast<const char*>(bytes), size});
  return 0;
}
