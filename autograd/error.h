#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tapeformer {

/// The base of the library's errors. Messages read `[op] rule; got name=type[shape] ...; try ...`.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ShapeError : Error {
  using Error::Error;
};

struct DTypeError : Error {
  using Error::Error;
};

struct DeviceError : Error {
  using Error::Error;
};

/// Misuse of a tape, or a non-finite value found in anomaly mode.
struct TapeError : Error {
  using Error::Error;
};

/// A file that cannot be used, with its name, the line, and the problem there.
struct DataError : Error {
  using Error::Error;
  /// `file:line: what`; line 0 means the whole file and is left out.
  DataError(const std::string& file, std::int64_t line, const std::string& what)
      : Error(file + (line > 0 ? ":" + std::to_string(line) : "") + ": " + what) {}
};

/// A weights or checkpoint file that is damaged, truncated or does not fit the model.
struct CheckpointError : Error {
  using Error::Error;
};

}  // namespace tapeformer
