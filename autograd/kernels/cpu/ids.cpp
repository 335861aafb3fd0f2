#include <tapeformer/autograd/kernels/ids.h>

namespace tapeformer::kernels {

void check_ids(Cpu, Index count, const std::int32_t* ids, const IdRange& range, std::int32_t* counted,
               cuda::Offence* offence) {
  std::int32_t inside = 0;
  for (Index i = 0; i < count; ++i) {
    if (range.counts(ids[i])) {
      ++inside;
    } else if (!range.allows(ids[i])) {
      *offence = {i, ids[i]};
      break;
    }
  }
  *counted = inside;
}

}  // namespace tapeformer::kernels
