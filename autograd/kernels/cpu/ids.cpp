#include <tapeformer/autograd/kernels/ids.h>

namespace tapeformer::kernels {

template <class Rule>
void check_ids(Cpu, Index count, const std::int32_t* ids, const Rule& rule, std::int32_t* counted,
               cuda::DeviceErrorSlot* error) {
  std::int32_t counts = 0;
  for (Index i = 0; i < count; ++i) {
    if (rule.counts(ids, i)) {
      ++counts;
    } else if (!rule.allows(ids, i)) {
      *error = {i, ids[i]};
      break;
    }
  }
  *counted = counts;
}

template check_ids_on<Cpu, IdRange> check_ids<IdRange>;
template check_ids_on<Cpu, RisingStarts> check_ids<RisingStarts>;
template check_ids_on<Cpu, LengthsWithin> check_ids<LengthsWithin>;

}  // namespace tapeformer::kernels
