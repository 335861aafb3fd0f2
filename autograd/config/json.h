#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

// JSON from files, which may be damaged or hostile; for sources only.
namespace tapeformer {

/// Parses strictly: nlohmann's own parse() accepts a key twice, stops at a NUL byte, and takes two seconds to
/// compile. `what` names the text in messages: "its header". nlohmann::json finds one of many keys faster
/// than an ordered one.
/// Throws:  CheckpointError if it is not JSON, has a key twice, or more than `most_levels` levels
template <class Json = nlohmann::ordered_json>
Json parse_json(std::string_view text, const std::string& what = "the text", int most_levels = 64);

/// The message without the library's name for the error, and shortened: it may quote any part of a file.
std::string reason_of(const nlohmann::json::exception& error);

extern template nlohmann::json parse_json<nlohmann::json>(std::string_view, const std::string&, int);
extern template nlohmann::ordered_json parse_json<nlohmann::ordered_json>(std::string_view,
                                                                          const std::string&, int);

}  // namespace tapeformer
