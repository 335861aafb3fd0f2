#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/attention/pieces/moba.h>

#include <utility>

namespace tapeformer {
namespace {

class ChosenBlocks : public AttentionPiece {
 public:
  ChosenBlocks(Index block, Index top_k) : block_(block), top_k_(top_k) {}
  void change_heads(CallHeads& heads) const override {
    require_self_attention("multi_head", "moba_block is", heads.is_self);
  }
  void change_scores(AttentionOptions& options, DType /*type*/, Index /*T*/, Index /*S*/) const override {
    options.block_size = block_, options.block_top_k = top_k_;
  }

 private:
  Index block_, top_k_;
};

}  // namespace

void BlockMixture::describe(const FieldVisitor& in_models, const FieldVisitor& /*in_layers*/) {
  in_models(
      "moba_block", moba_block,
      "keys of a block in mixture of block attention (mha, gqa, mqa), where each token attends to a few "
      "blocks; 0 for attention to all",
      kSize);
  in_models("moba_top_k", moba_top_k, "blocks that a token attends to, its own included", kPositiveSize);
}

void BlockMixture::complete(AttentionConfig& config) {
  if (config.cross) config.moba_block = 0;
  if (config.moba_block == 0) return;
  const std::pair<bool, const char*> excluded[] = {
      {config.softcap > 0, "softcap"},
      {config.relative_bias != RelativeBias::none, "a bias by distance"},
      {config.sinks, "sinks"},
      {config.weighting != AttentionWeighting::softmax, "sigmoid weights"},
      {config.dropout > 0, "dropout of weights"},
  };
  for (const auto& [is_set, name] : excluded)
    if (is_set)
      throw Error(
          format("[attention] moba_block excludes {}; got attention={}, moba_block={}, dropout={}; try "
                 "moba_block=0, or attention_dropout=0 and none of softcap, sinks, weighting, alibi and "
                 "buckets",
                 name, config.kind, config.moba_block, config.dropout));
}

MadePiece BlockMixture::make(const AttentionConfig& config, Generator& /*random*/) {
  if (config.moba_block == 0) return nullptr;
  return std::make_unique<ChosenBlocks>(config.moba_block, config.moba_top_k);
}

void BlockMixture::add_cost(const AttentionConfig& config, CostSum& sum) {
  if (config.moba_block > 0)
    sum.choose_blocks(config.moba_block, config.moba_top_k, config.heads, config.key_heads());
}

PieceCases BlockMixture::cases() {
  PieceCase blocks{"grouped_query_moba", "gqa",
                   [](AttentionConfig& c) { c.moba_block = 2, c.moba_top_k = 2; }, true};
  blocks.is_discrete = true;
  return {blocks};
}

}  // namespace tapeformer
