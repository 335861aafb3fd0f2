#pragma once

#include <tapeformer/autograd/json.h>
#include <tapeformer/autograd/shape.h>

#include <initializer_list>
#include <optional>
#include <set>
#include <string>

// Configurations of other programs in JSON; for sources only.
namespace tapeformer {

/// What a file holds. Throws: CheckpointError naming it if it cannot be read or is no file, or beyond 100 MB
std::string read_text_file(const std::string& path);

/// The fields of an object, each of which must be asked for: what is left over in the end is refused. null
/// stands for a field that is not there.
class JsonFields {
 public:
  /// Throws:  CheckpointError, here and in every function, naming the field: `where`, e.g. "rope_scaling.",
  ///          stands before its name
  JsonFields(nlohmann::ordered_json json, const std::string& where);

  bool has(const std::string& name);
  /// From 1 to 2^31 - 1.
  Index size(const std::string& name, std::optional<Index> otherwise = std::nullopt);
  /// Finite, positive.
  double number(const std::string& name, std::optional<double> otherwise = std::nullopt);
  /// In [0, 1).
  double rate(const std::string& name, double otherwise);
  bool flag(const std::string& name, bool otherwise);
  std::string text(const std::string& name, std::optional<std::string> otherwise = std::nullopt);
  JsonFields object(const std::string& name);
  /// Refuses any other value as one that changes the arithmetic and is not implemented.
  void demand(const std::string& name, const nlohmann::ordered_json& value);
  void ignore(std::initializer_list<const char*> names);
  /// Refuses fields that nobody has asked for, but for those whose name begins with an underscore, which are
  /// their writer's own.
  void finish() const;

  [[noreturn]] void fail(const std::string& name, const std::string& what) const;

 private:
  /// nullptr if it is not there, or null.
  const nlohmann::ordered_json* find(const std::string& name);
  template <class T>
  T otherwise_or_fail(const std::string& name, const std::optional<T>& otherwise) const;

  nlohmann::ordered_json json_;
  std::string where_;
  std::set<std::string> asked_;
};

}  // namespace tapeformer
