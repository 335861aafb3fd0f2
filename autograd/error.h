#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tapeformer {

/// The base of the library's errors. Messages read `[op] rule; got name=type[shape] ...; try ...`.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class ShapeError : public Error {
 public:
  using Error::Error;
};

class DTypeError : public Error {
 public:
  using Error::Error;
};

class DeviceError : public Error {
 public:
  using Error::Error;
};

/// Misuse of a tape, or a non-finite value found in anomaly mode.
class TapeError : public Error {
 public:
  using Error::Error;
};

/// A file that cannot be used, with its name, the line, and the problem there.
class DataError : public Error {
 public:
  using Error::Error;
  /// `file:line: what`; line 0 means the whole file and is left out.
  DataError(const std::string& file, std::int64_t line, const std::string& what)
      : Error(file + (line > 0 ? ":" + std::to_string(line) : "") + ": " + what) {}
};

/// A weights or checkpoint file that is damaged, truncated or does not fit the model.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

}  // namespace tapeformer
