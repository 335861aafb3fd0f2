#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>

#include <cstdint>
#include <set>
#include <vector>

namespace tapeformer {
namespace {

constexpr std::size_t kMostShown = 200;  // of a key, or of the parser's message, in bytes

std::string shortened(const std::string& text) {
  if (text.size() <= kMostShown) return text;
  std::size_t end = kMostShown;
  while (end > 0 && (text[end] & 0xc0) == 0x80) --end;  // within a character of UTF-8
  return text.substr(0, end) + "...";
}

/// Builds a value from the parser's events. nlohmann's own builders take time quadratic in an object's size:
/// one looks every key up among those before it, the other scans a whole object whenever one of its values
/// ends.
template <class Json>
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(const std::string& what, int most_levels)
      : what_(what), most_levels_(static_cast<std::size_t>(most_levels)) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(typename Json::binary_t&) override { return false; }  // no text has any
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    if (!open_.back().keys.insert(name).second)
      throw CheckpointError(what_ + " has \"" + shortened(name) + "\" twice");
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    throw CheckpointError(what_ + " is not JSON: " + reason_of(error));
  }

 private:
  struct Open {
    Json* value;
    std::set<std::string> keys;
  };

  Json* place(Json&& value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back().value;
    if (parent.is_array())
      return &parent.template get_ref<typename Json::array_t&>().emplace_back(std::move(value));
    return append(parent.template get_ref<typename Json::object_t&>(), std::move(value));
  }
  Json* append(nlohmann::json::object_t& object, Json&& value) {
    return &object.emplace(std::move(key_), std::move(value)).first->second;
  }
  /// Appends to a vector of pairs, whose own emplace() searches for the key.
  Json* append(nlohmann::ordered_json::object_t& object, Json&& value) {
    using Pairs = nlohmann::ordered_json::object_t::Container;
    return &static_cast<Pairs&>(object).emplace_back(std::move(key_), std::move(value)).second;
  }

  bool add(Json value) { return place(std::move(value)), true; }
  bool open(Json empty) {
    if (open_.size() >= most_levels_) throw CheckpointError(what_ + " is nested too deeply");
    open_.push_back({place(std::move(empty)), {}});
    return true;
  }
  bool close() { return open_.pop_back(), true; }

  std::string what_, key_;
  std::size_t most_levels_;
  Json root_;
  std::vector<Open> open_;  // objects and lists around the next value, outermost first
};

}  // namespace

template <class Json>
Json parse_json(std::string_view text, const std::string& what, int most_levels) {
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw CheckpointError(what + " is not JSON: it has a NUL at byte " + std::to_string(nul + 1));
  }
  Builder<Json> builder(what, most_levels);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string reason_of(const nlohmann::json::exception& error) {
  const std::string reason =
      error.what();  // "[json.exception.type_error.302] type must be string, but is null"
  return shortened(reason.substr(reason.find("] ") + 2));
}

template nlohmann::json parse_json<nlohmann::json>(std::string_view, const std::string&, int);
template nlohmann::ordered_json parse_json<nlohmann::ordered_json>(std::string_view, const std::string&, int);

}  // namespace tapeformer
