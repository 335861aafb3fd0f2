#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/shape.h>

#include <vector>

namespace tapeformer {

/// A training step that is timed here and in PyTorch (torch_step.py has the same table).
struct Workload {
  std::string name;
  bool translates = false;
  Index layers = 0, heads = 0, width = 0, feed_forward = 0, vocabulary = 0;
  Index batch = 0, length = 0, source_length = 0;
  double dropout = 0;

  Index tokens() const { return batch * (length + source_length); }

  /// Floating-point operations of a step: 2 per multiply-add, a backward pass counted as two forward ones.
  /// Language model: 6 * parameters * tokens + 6 * L * B * T^2 * C of causal attention, half of a square.
  /// Translation: tables that are only looked up multiply nothing, and no matrix multiplies the tokens of the
  /// other side. So 6 * B * (S * (L (4 C^2 + 2 C F) + L 2 C^2 of cross-attention's keys and values)
  ///          + T * (L (6 C^2 + 2 C F) + C V)) + 6 * L * B * C * (2 S^2 + T^2 + 2 T S) of attention.
  double flops(Index parameters) const {
    const double l = real(layers), c = real(width), f = real(feed_forward), v = real(vocabulary),
                 b = real(batch), t = real(length), s = real(source_length);
    if (!translates) return 6 * real(parameters) * b * t + 6 * l * b * t * t * c;
    const double source = l * (6 * c * c + 2 * c * f), target = l * (6 * c * c + 2 * c * f) + c * v;
    return 6 * b * (s * source + t * target) + 6 * l * b * c * (2 * s * s + t * t + 2 * t * s);
  }

 private:
  static double real(Index n) { return static_cast<double>(n); }
};

inline std::vector<Workload> all_workloads() {
  return {{"babygpt", false, 4, 4, 128, 512, 65, 12, 64, 0, 0.0},
          {"chargpt", false, 6, 6, 384, 1536, 65, 64, 256, 0, 0.2},
          {"gpt2-124m", false, 12, 12, 768, 3072, 50257, 4, 64, 0, 0.0},
          {"gpt2-124m-1k", false, 12, 12, 768, 3072, 50257, 4, 1024, 0, 0.0},
          {"gpt2-124m-h200", false, 12, 12, 768, 3072, 50304, 64, 1024, 0, 0.0},
          {"translate", true, 3, 8, 256, 512, 8000, 128, 16, 16, 0.1},
          {"translate-base", true, 6, 8, 512, 2048, 10000, 32, 32, 32, 0.1}};
}

/// "gpt2-124m-1k", or with a batch of its own "gpt2-124m-1k:1".
/// Throws: Error that lists the names there are.
inline Workload workload_named(const std::string& text) {
  const std::size_t colon = text.find(':');
  std::string known;
  for (Workload workload : all_workloads()) {
    known += (known.empty() ? "" : ", ") + workload.name;
    if (workload.name != text.substr(0, colon)) continue;
    if (colon == std::string::npos) return workload;
    const std::string batch = text.substr(colon + 1);
    if (batch.empty() || batch.size() > 6 || batch.find_first_not_of("0123456789") != std::string::npos ||
        std::stol(batch) == 0)
      throw Error("the batch of a workload must be a number above 0; got " + text);
    workload.name = text, workload.batch = std::stol(batch);
    return workload;
  }
  throw Error("there is no workload " + text + "; there are " + known);
}

}  // namespace tapeformer
