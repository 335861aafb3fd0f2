#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/text/json.h>

#include <algorithm>
#include <set>
#include <vector>

namespace tapeformer {
namespace {

/// Refuses input that the parser would accept.
template <class Json>
class Strict {
 public:
  Strict(const std::string& what, int most_levels) : what_(what), most_levels_(most_levels) {}

  bool operator()(int depth, typename Json::parse_event_t event, Json& parsed) {
    const auto level = static_cast<std::size_t>(depth);
    if (depth > most_levels_) throw CheckpointError(what_ + " is nested too deeply");
    if (event == Json::parse_event_t::object_start) {
      keys_.resize(std::max(keys_.size(), level + 1));
      keys_[level].clear();
    }
    if (event == Json::parse_event_t::key &&
        !keys_[level - 1].insert(parsed.template get<std::string>()).second) {
      throw CheckpointError(what_ + " has " + parsed.dump() + " twice");
    }
    return true;
  }

 private:
  std::string what_;
  int most_levels_;
  std::vector<std::set<std::string>> keys_;  // of the open objects, by depth
};

}  // namespace

template <class Json>
Json parse_json(std::string_view text, const std::string& what, int most_levels) {
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw CheckpointError(what + " is not JSON: it has a NUL byte, its byte " + std::to_string(nul + 1));
  }
  try {
    return Json::parse(text.begin(), text.end(),
                       [strict = Strict<Json>(what, most_levels)](
                           int depth, typename Json::parse_event_t event, Json& parsed) mutable {
                         return strict(depth, event, parsed);
                       });
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(what + " is not JSON: " + error.what());
  }
}

template nlohmann::json parse_json<nlohmann::json>(std::string_view, const std::string&, int);
template nlohmann::ordered_json parse_json<nlohmann::ordered_json>(std::string_view, const std::string&, int);

}  // namespace tapeformer
