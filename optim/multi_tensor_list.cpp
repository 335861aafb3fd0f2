#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/optim/multi_tensor_list.h>

#include <cstring>

namespace tapeformer {
namespace {

/// The bytes of `values` as a tensor on `device`.
template <class T>
Tensor sent(const PooledVector<T>& values, Device device) {
  static_assert(sizeof(T) % sizeof(std::int32_t) == 0, "made of whole words");
  const auto words = static_cast<Index>(values.size() * (sizeof(T) / sizeof(std::int32_t)));
  const Tensor here = Tensor::empty({words}, DType::i32, Device::cpu());
  if (words > 0) std::memcpy(here.raw(), values.data(), values.size() * sizeof(T));
  return here.to(device);
}

}  // namespace

void require_updated_elements(const char* op, const Parameter& parameter, const Tensor& state) {
  if (state.elements() == updated_elements(parameter)) return;
  throw ShapeError(
      format("[{}] a parameter's state must have the elements that this process updates; got state={} for {} "
             "elements of {}; try zeros_like_parameters(), and DataParallel before the optimizer",
             op, state.describe(), updated_elements(parameter), parameter.value().describe()));
}

void* MultiTensorList::checked_address(const char* name, const Tensor& x) const {
  if (!x.defined()) return nullptr;
  require_same_device(op_, name, x, like_);
  return like_.dtype() == DType::f64 ? static_cast<void*>(x.address<double>()) : x.address<float>();
}

void MultiTensorList::add(const Parameter& parameter, const Tensor& state1, const Tensor& state2,
                          Index setting) {
  const Index count = updated_elements(parameter);
  if (count == 0 && !is_updated_whole(parameter)) return;
  for (const Tensor* state : {&state1, &state2})
    if (state->defined()) require_updated_elements(op_, parameter, *state);
  append(parameter, parameter.state()->updated.begin, count, state1, 0, state2, 0, setting);
}

void MultiTensorList::add_part(const Parameter& parameter, Index first, Index count, const Tensor& state1,
                               const Tensor& state2, Index first2, Index setting) {
  if (!is_updated_whole(parameter))
    throw ShapeError(
        format("[{}] ranks must not divide a parameter; got {}, of which this process updates {} elements",
               op_, parameter.value().describe(), updated_elements(parameter)));
  require_updated_elements(op_, parameter, state1);
  append(parameter, first, count, state1, first, state2, first2, setting);
}

void MultiTensorList::append(const Parameter& parameter, Index first, Index count, const Tensor& state1,
                             Index first1, const Tensor& state2, Index first2, Index setting) {
  const Tensor &value = parameter.value(), &shadow = parameter.state()->shadow,
               &share = parameter.state()->share;
  if (!like_.defined()) like_ = value;
  const auto part = [&](const char* name, const Tensor& x, Index from) -> void* {
    char* const begin = static_cast<char*>(checked_address(name, x));
    return begin == nullptr ? nullptr : begin + from * bytes_of(value.dtype());
  };
  kernels::StepTensor entry;
  entry.gradient = part("gradient", parameter.gradient(), first);
  entry.value = share.defined() ? part("value", share, 0) : part("value", value, first);
  entry.state1 = part("state", state1, first1);
  entry.state2 = part("state", state2, first2);
  entry.shadow = shadow.defined() ? shadow.address<BFloat16>() + first : nullptr;
  entry.count = count;
  entry.setting = setting;
  append(entry);
}

void MultiTensorList::add(const Tensor& gradient) {
  if (!like_.defined()) like_ = gradient;
  kernels::StepTensor entry;
  entry.gradient = checked_address("gradient", gradient);
  entry.count = gradient.elements();
  append(entry);
}

void MultiTensorList::append(const kernels::StepTensor& entry) {
  if (count_ == entries_.size()) entries_.emplace_back();
  changed_ = changed_ || std::memcmp(&entries_[count_], &entry, sizeof entry) != 0;
  entries_[count_++] = entry;
}

void MultiTensorList::count_memory() {
  for (const kernels::StepTensor& entry : entries_) {
    const Index operands =
        1 + (entry.value != nullptr) + (entry.state1 != nullptr) + (entry.state2 != nullptr);
    tensors_.elements += entry.count;
    tensors_.bytes += entry.count * (operands * bytes_of(like_.dtype()) +
                                     (entry.shadow != nullptr ? bytes_of(DType::bf16) : 0));
  }
}

void MultiTensorList::end() {
  changed_ = changed_ || count_ != entries_.size();
  entries_.resize(count_);
  tensors_.tensor_count = static_cast<Index>(count_);
  tensors_.tensors = entries_.data();
  tensors_.elements = tensors_.bytes = 0;
  if (is_profiled()) count_memory();
  const Device device = count_ == 0 ? Device::cpu() : like_.device();
  like_ = {};
  if (!device.is_cuda()) return;
  if (changed_) {
    PooledVector<kernels::StepChunk> chunks;
    for (std::size_t i = 0; i < count_; ++i)
      for (Index part = 0; part * kernels::kStepChunk < entries_[i].count; ++part)
        chunks.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(part)});
    on_device_ = sent(entries_, device);
    chunks_on_device_ = sent(chunks, device);
    tensors_.chunk_count = static_cast<Index>(chunks.size());
    changed_ = false;
  }
  tensors_.tensors = reinterpret_cast<const kernels::StepTensor*>(on_device_.address<std::int32_t>());
  tensors_.chunks = reinterpret_cast<const kernels::StepChunk*>(chunks_on_device_.address<std::int32_t>());
}

}  // namespace tapeformer
