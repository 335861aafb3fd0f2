#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

namespace tapeformer {

/// The names of an enumeration, whose values count from 0.
struct EnumNames {
  const char* what = nullptr;  ///< for messages: "WHAT must be none, head or element; got NAME"
  const char* names[8] = {};   ///< in files and options, in order; nullptr after the last
};

/// An enumeration is declared together with its names:
///   enum class OutputGate { none, head, element };
///   template <>
///   inline constexpr EnumNames kNames<OutputGate>{"output_gate", {"none", "head", "element"}};
template <class Kind>
inline constexpr EnumNames kNames{};

/// The name of a value: "head" for OutputGate::head.
template <class Kind, class = std::enable_if_t<std::is_enum_v<Kind> && kNames<Kind>.what != nullptr>>
const char* name_of(Kind kind) {
  return kNames<Kind>.names[static_cast<std::size_t>(kind)];
}

std::vector<std::string> all_names(const EnumNames& names);
/// The index of a name. Throws: Error that lists the names
std::size_t place_of(const std::string& name, const EnumNames& names);

/// The value of a name: OutputGate::head for "head". Throws: Error "WHAT must be none, head or element; got
/// NAME"
template <class Kind>
Kind kind_named(const std::string& name) {
  return static_cast<Kind>(place_of(name, kNames<Kind>));
}

}  // namespace tapeformer
