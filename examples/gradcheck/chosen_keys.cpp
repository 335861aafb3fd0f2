#include <tapeformer/autograd/ops/attention/sparse_attention.h>
#include <tapeformer/examples/gradcheck/chosen_keys.h>

namespace tapeformer {

CheckCase chosen_keys_case(CheckSetting& setting) {
  const CheckSizes& sizes = setting.sizes;
  const Index B = setting.batch, T = setting.queries, S = setting.keys, width = sizes.head_width;
  const IndexHeads index{setting.normal({B, T, sizes.heads, width}), setting.normal({B, S, width}),
                         setting.normal({B, T, sizes.heads})};
  const Tensor chosen = choose_keys(index, 2, setting.context),
               query = setting.normal({B, T, sizes.heads, width + sizes.value_width}),
               latents = setting.normal({B, S, width + sizes.value_width});
  SparseOptions options;
  options.value_width = sizes.value_width, options.scale = 0.4;
  return operation_case(setting, {{"query", query}, {"latents", latents}},
                        [=] { return sparse_attention(query, latents, chosen, options); });
}

}  // namespace tapeformer
