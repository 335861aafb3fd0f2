#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

// JSON of files, our own and others', which may be damaged or hostile; for sources only.
namespace tapeformer {

/// nlohmann's own parse() lets a key come twice, takes a NUL byte for the end, and two seconds to compile.
/// `what` names the text in messages: "its header". Of many keys nlohmann::json finds one much sooner.
/// Throws:  CheckpointError if it is not JSON, has a key twice, or levels beyond `most_levels`
template <class Json = nlohmann::ordered_json>
Json parse_json(std::string_view text, const std::string& what = "the text", int most_levels = 64);

extern template nlohmann::json parse_json<nlohmann::json>(std::string_view, const std::string&, int);
extern template nlohmann::ordered_json parse_json<nlohmann::ordered_json>(std::string_view,
                                                                          const std::string&, int);

}  // namespace tapeformer
