#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/json/read_json.h>
#include <tapeformer/data/tokenizers/numbered_pieces.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <algorithm>

namespace tapeformer {
NumberedPieces::NumberedPieces(Vocabulary vocabulary, std::string model, const std::string& name)
    : words_(std::move(vocabulary)), model_(std::move(model), name) {
  for (std::size_t id = 0; id < words_.pieces.size(); ++id)
    if (!words_.pieces[id].empty()) ids_.emplace(words_.pieces[id], static_cast<std::int32_t>(id));
  nlohmann::json controls = nlohmann::json::array();
  for (const std::int32_t id : words_.controls)
    controls.push_back({{"id", id}, {"content", piece(id)}, {"special", true}});
  try {
    controls_.emplace(controls, ids_, [](const std::string& text) { return text; });
  } catch (const tokenizer_json::UnsupportedPart& part) {
    throw DataError(name, 0, format("goes with {}, which is not supported; restore its files", part.what));
  }
}

void NumberedPieces::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  check_utf8(text, "SentencePiece");
  controls_->encode(text, ids, [&](const std::string& part, bool) { append_pieces(part, ids); });
}

void NumberedPieces::append_pieces(std::string_view text, std::vector<std::int32_t>& ids) const {
  for (const std::string& found : model_.pieces(text)) append_piece(found, ids);
}

void NumberedPieces::append_piece(const std::string& piece, std::vector<std::int32_t>& ids) const {
  ids.push_back(find(piece).value_or(words_.unknown));
}

std::string NumberedPieces::bytes_of(std::int32_t id) const {
  const std::string text = piece(id);
  if (std::count(words_.controls.begin(), words_.controls.end(), id) > 0) return {};
  const std::int32_t known = model_.library().PieceToId(text);
  return model_.library().IsUnknown(known) ? with_spaces(text) : model_.text_of(known);
}

std::string NumberedPieces::decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    if (id == words_.end) break;
    text += bytes_of(id);
  }
  std::string_view rest = trim_end(text);
  while (!rest.empty() && is_white_space(decode_code_point(rest)))
    rest.remove_prefix(code_point_length(rest));
  return std::string(rest);
}

std::string NumberedPieces::piece(std::int32_t id) const {
  check_token(id, vocabulary_size());
  return words_.pieces[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> NumberedPieces::find(const std::string& token) const {
  const auto known = ids_.find(token);
  return known == ids_.end() ? std::nullopt : std::optional(known->second);
}

std::vector<std::string> pieces_of(const SentencePieceModel& model) {
  std::vector<std::string> pieces;
  for (std::int32_t id = 0; id < model.library().GetPieceSize(); ++id)
    pieces.push_back(model.library().IdToPiece(id));
  return pieces;
}

std::vector<std::string> pieces_by_id(const nlohmann::json& ids, const std::string& name) {
  std::vector<std::string> pieces;
  for (const auto& [piece, id] : ids.items()) {
    if (!ids.is_object() || !id.is_number_integer() || id < 0 || id >= ids.size() + kMostGaps)
      throw DataError(name, 0, format("is not an object of pieces and ids; got {}: {}", piece, id.dump()));
    const auto at = id.get<std::size_t>();
    if (at >= pieces.size()) pieces.resize(at + 1);
    pieces[at] = piece;
  }
  return pieces;
}

}  // namespace tapeformer
