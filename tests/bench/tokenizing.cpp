// Byte-level BPE over a file: tokens, and how many MB a second of processor time takes.
// Usage: bench tokenizing FILE --vocabulary encoder.json --merges vocab.bpe [--repeats N] [--ids FILE]
//                         [--lengths FILE]
//        bench tokenizing FILE --json tokenizer.json [--repeats N] [--ids FILE] [--lengths FILE]
//        bench tokenizing FILE --train SIZE [--vocabulary FILE --merges FILE to write]
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/text_tokenizer.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/tests/bench/bench.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>

using namespace tapeformer;

namespace {

/// Processor time: nothing here uses more than one thread.
double now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

template <class Item>
void write(const std::string& path, const Item* items, std::size_t count) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(items), static_cast<std::streamsize>(count * sizeof(Item)));
  if (!file) throw DataError(path, 0, "cannot be written");
}

/// The pieces of `text` that `path` gives the lengths of (little-endian, 4 bytes each); the whole without it.
std::vector<std::string_view> pieces_of(std::string_view text, const std::string& path) {
  if (path.empty()) return {text};
  const std::string lengths = read_file(path);
  std::vector<std::string_view> pieces;
  for (std::size_t i = 0; i < lengths.size(); i += 4) {
    std::uint32_t length;
    std::memcpy(&length, lengths.data() + i, 4);
    pieces.push_back(text.substr(0, length));
    text.remove_prefix(pieces.back().size());
  }
  return pieces;
}

}  // namespace

int tapeformer::bench_tokenizing(int argc, char** argv) {
  std::string path, vocabulary, merges, json, ids_path, lengths_path;
  Index train = 0;
  int repeats = 1;
  const CommandLine line("Encodes a file by byte-level BPE, or by a tokenizer.json.");
  line.option("file", path).required();
  line.option("--vocabulary", vocabulary, "token to id, JSON");
  line.option("--merges", merges);
  line.option("--json", json, "a tokenizer.json instead");
  line.option("--train", train, "learn a vocabulary of that size and write it to these files");
  line.option("--repeats", repeats);
  line.option("--lengths", lengths_path, "encode pieces of these lengths (32-bit integers), each by itself");
  line.option("--ids", ids_path, "write the ids there as 32-bit integers; after each piece, -1");
  if (!line.read(argc, argv)) return 0;
  const std::string text = read_file(path);
  double begun = now();
  if (train > 0) {
    const auto learnt = train_byte_pair_tokenizer([&](const auto& reader) { reader(text); }, train);
    std::printf("learnt %lld tokens in %.2f s\n", static_cast<long long>(learnt->vocabulary_size()),
                now() - begun);
    const BytePairFiles files = byte_pair_files(*learnt);
    write(vocabulary, files.vocabulary.data(), files.vocabulary.size());
    write(merges, files.merges.data(), files.merges.size());
  }
  begun = now();
  const auto tokenizer =
      json.empty() ? load_byte_pair_tokenizer(vocabulary, merges) : load_tokenizer_json(json);
  std::printf("loaded in %.3f s\n", now() - begun);
  const std::vector<std::string_view> pieces = pieces_of(text, lengths_path);
  std::vector<std::int32_t> ids;
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    ids.clear();
    begun = now();
    for (const std::string_view piece : pieces) {
      tokenizer->encode(piece, ids);
      if (!lengths_path.empty()) ids.push_back(-1);
    }
    best = std::min(best, now() - begun);
  }
  std::printf("%zu bytes, %zu tokens, %.1f MB/s\n", text.size(), ids.size(),
              1e-6 * static_cast<double>(text.size()) / best);
  if (lengths_path.empty() && json.empty() && tokenizer->decode(ids) != text)
    throw DataError(path, 0, "does not come back");
  if (!ids_path.empty()) write(ids_path, ids.data(), ids.size());
  return 0;
}
