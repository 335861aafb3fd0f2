#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/optim/multi_tensor_list.h>

#include <cstring>
#include <string>
#include <utility>

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

bool same(const kernels::StepTensor& a, const kernels::StepTensor& b) {
  return a.gradient == b.gradient && a.value == b.value && a.state1 == b.state1 && a.state2 == b.state2 &&
         a.shadow == b.shadow && a.count == b.count && a.setting == b.setting;
}

}  // namespace

void require_updated_elements(const char* op, const Parameter& parameter, const Tensor& state) {
  if (state.elements() == updated_elements(parameter)) return;
  throw ShapeError(std::string("[") + op +
                   "] a parameter's state must have the elements that this process updates; got state=" +
                   state.describe() + " for " + std::to_string(updated_elements(parameter)) +
                   " elements of " + parameter.value().describe() +
                   "; try zeros_like_parameters(), and DataParallel before the optimizer");
}

void* MultiTensorList::checked_address(const char* name, const Tensor& x) const {
  if (!x.defined()) return nullptr;
  require_same_device(op_, name, x, like_);
  return x.dtype() == DType::f64 && like_.dtype() == DType::f64 ? static_cast<void*>(x.address<double>())
                                                                : x.address<float>();
}

void MultiTensorList::add(const Parameter& parameter, const Tensor& state1, const Tensor& state2,
                          Index setting) {
  const Tensor &value = parameter.value(), &shadow = parameter.state()->shadow,
               &share = parameter.state()->share;
  kernels::StepTensor entry;
  entry.count = updated_elements(parameter);
  if (entry.count == 0 && !is_updated_whole(parameter)) return;
  if (count_ == 0) like_ = value;
  const Index begin = parameter.state()->updated.begin;
  const auto updated = [&](void* all) { return static_cast<char*>(all) + begin * bytes_of(value.dtype()); };
  entry.gradient = updated(checked_address("gradient", parameter.gradient()));
  entry.value = share.defined() ? checked_address("value", share) : updated(checked_address("value", value));
  for (const Tensor* state : {&state1, &state2})
    if (state->defined()) require_updated_elements(op_, parameter, *state);
  entry.state1 = checked_address("state", state1);
  entry.state2 = checked_address("state", state2);
  entry.shadow = shadow.defined() ? shadow.address<BFloat16>() + begin : nullptr;
  entry.setting = setting;
  append(entry);
}

void MultiTensorList::add_part(const Parameter& parameter, Index first, Index count, const Tensor& state1,
                               const Tensor& state2, Index first2, Index setting) {
  const Tensor &value = parameter.value(), &shadow = parameter.state()->shadow;
  if (!is_updated_whole(parameter)) {
    throw ShapeError(std::string("[") + op_ + "] ranks must not divide a parameter; got " + value.describe() +
                     ", of which this process updates " + std::to_string(updated_elements(parameter)) +
                     " elements");
  }
  if (count_ == 0) like_ = value;
  const auto part = [&](const char* name, const Tensor& x, Index from) {
    return static_cast<char*>(checked_address(name, x)) + from * bytes_of(value.dtype());
  };
  kernels::StepTensor entry;
  entry.gradient = part("gradient", parameter.gradient(), first);
  entry.value = part("value", value, first);
  entry.state1 = part("state", state1, first);
  entry.state2 = part("state", state2, first2);
  entry.shadow = shadow.defined() ? shadow.address<BFloat16>() + first : nullptr;
  entry.count = count;
  entry.setting = setting;
  append(entry);
}

void MultiTensorList::add(const Tensor& gradient) {
  if (count_ == 0) like_ = gradient;
  kernels::StepTensor entry;
  entry.gradient = checked_address("gradient", gradient);
  entry.count = gradient.elements();
  append(entry);
}

void MultiTensorList::append(const kernels::StepTensor& entry) {
  if (count_ == entries_.size()) {
    entries_.emplace_back();
    changed_ = true;
  }
  changed_ = changed_ || !same(entries_[count_], entry);
  entries_[count_++] = entry;
}

void MultiTensorList::count_memory() {
  for (const kernels::StepTensor& entry : entries_) {
    Index bytes = entry.shadow == nullptr ? 0 : bytes_of(DType::bf16);
    for (const void* operand :
         {entry.gradient, static_cast<const void*>(entry.value), static_cast<const void*>(entry.state1),
          static_cast<const void*>(entry.state2)})
      bytes += operand == nullptr ? 0 : bytes_of(like_.dtype());
    tensors_.elements += entry.count;
    tensors_.bytes += entry.count * bytes;
  }
}

void MultiTensorList::end() {
  changed_ = changed_ || count_ != entries_.size();
  entries_.resize(count_);
  tensors_.tensor_count = static_cast<Index>(count_);
  tensors_.tensors = entries_.data();
  tensors_.elements = tensors_.bytes = 0;
  if (is_profiled()) count_memory();
  const Device device = count_ == 0 ? Device::cpu() : std::exchange(like_, Tensor()).device();
  if (!device.is_cuda()) return;
  if (changed_) {
    PooledVector<kernels::StepChunk> chunks;
    for (std::size_t i = 0; i < count_; ++i) {
      for (Index part = 0; part * kernels::kStepChunk < entries_[i].count; ++part)
        chunks.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(part)});
    }
    on_device_ = sent(entries_, device);
    chunks_on_device_ = sent(chunks, device);
    tensors_.chunk_count = static_cast<Index>(chunks.size());
    changed_ = false;
  }
  tensors_.tensors = reinterpret_cast<const kernels::StepTensor*>(on_device_.address<std::int32_t>());
  tensors_.chunks = reinterpret_cast<const kernels::StepChunk*>(chunks_on_device_.address<std::int32_t>());
}

}  // namespace tapeformer
