#pragma once

#include <tapeformer/autograd/error.h>

#include <string>
#include <utility>

namespace tapeformer {

/// A value that is not finite, found by Tape::detect_anomalies().
class AnomalyError : public TapeError {
 public:
  /// The message is both texts, with a semicolon between them.
  AnomalyError(std::string what_was_found, const std::string& remedy)
      : TapeError(what_was_found + "; " + remedy), finding(std::move(what_was_found)) {}
  std::string finding;  ///< the message without its remedy
};

}  // namespace tapeformer
