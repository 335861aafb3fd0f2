#pragma once

#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/linear.h>

namespace tapeformer {

/// The matrices that make queries, keys and values: one for all, or the query's and one for keys and values,
/// or three; only the query's for a layer with shared_keys.
/// Initial: Xavier uniform, part by part; biases zero
class HeadProjections : public Module {
 public:
  HeadProjections(const AttentionConfig& config, Generator& random);
  /// Draws the initial values, once the rest of the layer has been made.
  void initialise(Generator& random);

  /// The heads of a call. A part of a common matrix is projected by its own rows. There are no keys and
  /// values where the layer shares another's or the cache holds a memory's.
  CallHeads operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                       const AttentionContext& context, bool is_self) const;
  /// The numbers and widths of a call's heads.
  const PackedHeads& sizes() const { return sizes_; }
  void visit(ParameterVisitor& visitor) override;

 private:
  enum Part { kQuery, kKey, kValue };
  Tensor project(Part part, const Tensor& x) const;

  PackedHeads sizes_;
  bool is_packed_, has_keys_;
  LinearConfig key_value_;           // of the matrix for keys and values that initialise() makes
  PooledVector<Index> part_widths_;  // of the projected query, key and value
  std::vector<Linear> matrices_;
};

}  // namespace tapeformer
