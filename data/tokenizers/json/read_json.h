#pragma once

#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>

// JSON in the files of tokenizers; for sources only.
namespace tapeformer {

/// Returns what `read` makes of JSON.
/// Throws:  DataError "NAME PROBLEM: why" where `read` finds the JSON damaged
template <class Read>
auto reading_json(const std::string& name, const std::string& problem, const Read& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& error) {
    throw DataError(name, 0, problem + ": " + reason_of(error));
  } catch (const CheckpointError& error) {
    throw DataError(name, 0, problem + ": " + error.what());
  }
}

/// The text of a token in a file of transformers, a string or an object; "" for anything else.
inline std::string token_text(const nlohmann::json& token) {
  if (token.is_object() && token.contains("content")) return token_text(token["content"]);
  return token.is_string() ? token.get<std::string>() : "";
}

constexpr std::size_t kMostGaps = 1 << 16;  ///< ids without a token in a vocabulary

/// The id of a token; get() would cut off the upper half of a wider number.
/// Throws:  CheckpointError unless it is an integer from 0 to 2^31 - 1
inline std::int32_t token_id(const nlohmann::json& id) {
  if (!id.is_number_integer() || id < 0 || id > 0x7fffffff)
    throw CheckpointError("an id must be from 0 to 2147483647; got " + id.dump());
  return id.get<std::int32_t>();
}

}  // namespace tapeformer
