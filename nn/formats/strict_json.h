#pragma once

#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/shape.h>
#include <tapeformer/autograd/system/file.h>

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

// Other programs' configurations in JSON; for sources only.
namespace tapeformer {

/// The fields of an object. Each must be read: finish() refuses the others. null counts as a missing field,
/// except for flag().
class JsonFields {
 public:
  /// Throws:  CheckpointError, here and in every function, naming the field with `where`, for example
  ///          "rope_scaling.", before its name
  JsonFields(nlohmann::ordered_json json, const std::string& where);

  bool has(const std::string& name);
  /// True for a field that is null, which some programs distinguish from a missing one.
  bool is_null(const std::string& name);
  /// An integer from 1 to 2^31 - 1.
  Index size(const std::string& name, std::optional<Index> otherwise = std::nullopt);
  /// An integer from 0 to 2^31 - 1.
  Index count(const std::string& name, Index otherwise);
  /// A finite, positive number.
  double number(const std::string& name, std::optional<double> otherwise = std::nullopt);
  /// A number in [0, 1).
  double rate(const std::string& name, double otherwise);
  /// null is false, as in Python.
  bool flag(const std::string& name, bool otherwise);
  std::string text(const std::string& name, std::optional<std::string> otherwise = std::nullopt);
  /// A list of integers from 0 to 2^31 - 1.
  std::vector<Index> counts(const std::string& name);
  /// A list of strings; empty if the field is missing.
  std::vector<std::string> texts(const std::string& name);
  JsonFields object(const std::string& name);
  /// Refuses any other value of a field that changes the arithmetic and is not implemented.
  void demand(const std::string& name, const nlohmann::ordered_json& value);
  void ignore(std::initializer_list<const char*> names);
  /// Refuses fields that have not been read, except names that begin with an underscore, which are private to
  /// the program that wrote them.
  void finish() const;

  [[noreturn]] void fail(const std::string& name, const std::string& what) const;

 private:
  /// nullptr if the field is missing or null.
  const nlohmann::ordered_json* find(const std::string& name);
  template <class T, class Rule>
  T checked(const std::string& name, const std::optional<T>& otherwise, const Rule& holds, const char* rule);

  nlohmann::ordered_json json_;
  std::string where_;
  std::set<std::string> asked_;
};

/// Calls function() and prefixes the message of an exception with the path, unless it begins with that.
template <class F>
auto naming(const std::string& path, const F& function) {
  try {
    return function();
  } catch (const Error& error) {
    const std::string what = error.what();
    const bool is_named = what.rfind(path + ":", 0) == 0 || what.rfind(path + "/", 0) == 0;
    throw CheckpointError(is_named ? what : path + ": " + what);
  }
}

}  // namespace tapeformer
