#include <tapeformer/tests/emulator/async_accesses.h>

#include <algorithm>

namespace tapeformer::emulator {

void Knowledge::add(const Knowledge& other) {
  for (unsigned i = 0; i < kAgents; ++i) beside[i] = std::max(beside[i], other.beside[i]);
  threads.add(other.threads);
}

void Knowledge::keep_common(const Knowledge& other) {
  for (unsigned i = 0; i < kAgents; ++i) beside[i] = std::min(beside[i], other.beside[i]);
  threads.keep_common(other.threads);
}

std::uint32_t AsyncAccesses::add(const AsyncOperation& operation) {
  operations_.push_back(operation);
  return static_cast<std::uint32_t>(operations_.size() - 1);
}

bool AsyncAccesses::is_done(std::uint32_t number, const Progress& done) const {
  const AsyncOperation& operation = operations_[number];
  for (unsigned i = 0; i < operation.agents; ++i)
    if (done[operation.first_agent + i] <= operation.number) return false;
  return true;
}

std::string AsyncAccesses::describe(std::uint32_t number) const {
  const AsyncOperation& operation = operations_[number];
  return std::string(operation.name) + " (" + operation.place.file + ":" +
         std::to_string(operation.place.line) + ")";
}

/// An access to the piece that is not known to be `done` and races with a read or a write; "" if none.
std::string AsyncAccesses::unordered(const Piece& piece, bool writes, const Progress& done) const {
  if (piece.block != block_) return "";
  if (piece.write != kNone && !is_done(piece.write, done)) return describe(piece.write) + " writes";
  if (!writes) return "";
  for (const std::uint32_t read : piece.reads)
    if (!is_done(read, done)) return describe(read) + " reads";
  return "";
}

std::string AsyncAccesses::touch(std::uint32_t operation, std::size_t offset, bool writes,
                                 const Progress& done) {
  Piece& piece = pieces_[offset / kPiece];
  const std::string other = unordered(piece, writes, done);
  if (!other.empty())
    return describe(operation) + (writes ? " writes" : " reads") + " what " + other +
           ", and nothing orders them";
  if (piece.block != block_ || writes) {
    piece.block = block_;
    piece.write = writes ? operation : kNone;
    piece.reads.clear();
  }
  if (writes) return "";
  const auto same = std::find_if(piece.reads.begin(), piece.reads.end(), [&](std::uint32_t read) {
    return operations_[read].first_agent == operations_[operation].first_agent;
  });
  if (same == piece.reads.end())
    piece.reads.push_back(operation);
  else
    *same = operation;
  return "";
}

std::string AsyncAccesses::under_way(std::size_t offset, std::size_t bytes, bool writes,
                                     const Progress& done) const {
  for (std::size_t at = offset / kPiece; at * kPiece < offset + bytes; ++at) {
    std::string other = unordered(pieces_[at], writes, done);
    if (!other.empty()) return other;
  }
  return "";
}

}  // namespace tapeformer::emulator
