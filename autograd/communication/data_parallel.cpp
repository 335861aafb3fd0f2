#include <tapeformer/autograd/communication/data_parallel.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>
#include <utility>

namespace tapeformer {
namespace {

constexpr Index kAlignment = 64;           // bytes
constexpr Index kLeastBucket = 256 << 10;  // bytes of a bucket whose latency matters little

Index rounded_up(Index count, Index multiple) { return (count + multiple - 1) / multiple * multiple; }

Index aligned_elements(DType type) { return kAlignment / bytes_of(type); }

char* address_of(const Tensor& buffer, Index offset) {
  return static_cast<char*>(buffer.state()->storage->data) + offset * bytes_of(buffer.dtype());
}

/// The elements of `buffer` from `offset` on; keeps it alive.
Tensor view(const Tensor& buffer, Index offset, const Shape& shape) {
  const auto bytes = static_cast<std::size_t>(shape.elements() * bytes_of(buffer.dtype()));
  const Handle<Storage> storage(new Storage(address_of(buffer, offset), bytes, [buffer] {}));
  storage->device = buffer.device();
  return Tensor::adopt(storage, shape, buffer.dtype());
}

/// Makes x, and its parameter, the elements of `buffer` from `offset` on.
void move_into(const Tensor& x, const Tensor& buffer, Index offset) {
  x.state()->storage = view(buffer, offset, x.shape()).state()->storage;
}

/// Releases the memory of x, which keeps its shape.
void leave_memory(const Tensor& x) {
  const Device device = x.device();
  x.state()->storage = Handle<Storage>(new Storage(nullptr, 0, [] {}));
  x.state()->storage->device = device;
}

bool lies_at(const Tensor& x, const Tensor& buffer, Index offset) {
  return x.defined() && x.state()->storage->data == address_of(buffer, offset);
}

}  // namespace

DataParallel::DataParallel(std::shared_ptr<Communicator> ranks, const std::vector<Parameter>& parameters,
                           const DataParallelConfig& config)
    : ranks_(std::move(ranks)), is_sharded_(config.shard_optimizer && ranks_->size() > 1) {
  if (config.bucket_bytes <= 0) {
    throw Error(format(
        "[data_parallel] a bucket's size must be positive; got bucket_bytes={}; try the default, 25 MiB",
        config.bucket_bytes));
  }
  if (ranks_->size() == 1) return;
  Index bytes = 0;
  for (const Parameter& parameter : parameters) bytes += parameter.value().bytes();
  const Index most = std::min(config.bucket_bytes, std::max(bytes / 8, kLeastBucket));
  std::for_each(parameters.rbegin(), parameters.rend(),
                [&](const Parameter& parameter) { add(parameter, most); });
  for (Bucket& bucket : buckets_) make_views(bucket);
}

void DataParallel::add(const Parameter& parameter, Index bucket_bytes) {
  const Tensor& value = parameter.value();
  const DType type = value.dtype();
  if (holds(parameter))
    throw Error(
        format("[data_parallel] a parameter must be given only once; got {} twice", value.describe()));
  if (type != DType::f32 && type != DType::f64) {
    throw DTypeError(
        format("[data_parallel] parameters must be f32 or f64; got {}; try f32 with set_shadow(DType::bf16)",
               value.describe()));
  }
  const Index room = rounded_up(value.elements(), aligned_elements(type));
  const auto fits = [&](const Bucket& bucket) {
    const Tensor& other = slots_[bucket.begin].parameter.value();
    return other.dtype() == type && other.device() == value.device() &&
           slots_[bucket.begin].parameter.used().dtype() == parameter.used().dtype() &&
           (bucket.elements + room) * bytes_of(type) <= bucket_bytes;
  };
  if (buckets_.empty() || !fits(buckets_.back())) {
    buckets_.emplace_back();
    buckets_.back().begin = slots_.size();
  }
  Bucket& bucket = buckets_.back();
  positions_.put(parameter.state(), static_cast<std::int32_t>(slots_.size()));
  slots_.push_back({parameter, buckets_.size() - 1, bucket.elements});
  bucket.elements += room;
  bucket.end = slots_.size();
}

void DataParallel::make_views(Bucket& bucket) {
  const Tensor like = slots_[bucket.begin].parameter.value();
  const Index size = ranks_->size();
  bucket.elements = rounded_up(bucket.elements, size * aligned_elements(like.dtype()));
  bucket.values = Tensor::zeros({bucket.elements}, like.dtype(), like.device());
  bucket.gradients = Tensor::zeros({bucket.elements}, like.dtype(), like.device());
  for (std::size_t i = bucket.begin; i < bucket.end; ++i) {
    const Tensor& value = slots_[i].parameter.value();
    view(bucket.values, slots_[i].offset, value.shape()).copy_from(value);
  }
  ranks_->broadcast(bucket.values).wait();
  const Index share = bucket.elements / size, own = share * ranks_->rank();
  for (std::size_t i = bucket.begin; i < bucket.end; ++i) {
    Parameter& parameter = slots_[i].parameter;
    const Index offset = slots_[i].offset;
    const Shape shape = parameter.value().shape();
    parameter.set_value(view(bucket.values, offset, shape));
    ParameterState& state = *parameter.state();
    state.gradient = view(bucket.gradients, offset, shape);
    if (!is_sharded_) continue;
    const auto inside = [&](Index position) {
      return std::clamp(position - offset, Index{0}, shape.elements());
    };
    state.updated = {inside(own), inside(own + share)};
  }
  if (is_sharded_ && slots_[bucket.begin].parameter.state()->shadow.defined()) {
    make_shadow_views(bucket);
    hold_share(bucket);
  }
}

void DataParallel::make_shadow_views(Bucket& bucket) {
  const DType type = slots_[bucket.begin].parameter.used().dtype();
  bucket.shadows = Tensor::zeros({bucket.elements}, type, bucket.values.device());
  for (std::size_t i = bucket.begin; i < bucket.end; ++i) {
    const Tensor& shadow = slots_[i].parameter.state()->shadow;
    const Tensor values = shadow.clone();
    move_into(shadow, bucket.shadows, slots_[i].offset);
    shadow.copy_from(values);
  }
}

/// Releases the values that other ranks update.
void DataParallel::hold_share(Bucket& bucket) {
  const Index share = bucket.elements / ranks_->size();
  bucket.share = view(bucket.values, share * ranks_->rank(), {share}).clone();
  for (std::size_t i = bucket.begin; i < bucket.end; ++i) {
    ParameterState& state = *slots_[i].parameter.state();
    const Index count = state.updated.end - state.updated.begin;
    const Index from = slots_[i].offset + state.updated.begin - share * ranks_->rank();
    if (count > 0) state.share = view(bucket.share, from, {count});
    leave_memory(state.value);
  }
  bucket.values = Tensor();
}

void DataParallel::hold_whole(Bucket& bucket) {
  bucket.values = Tensor::empty({bucket.elements}, bucket.share.dtype(), bucket.share.device());
  const Index share = bucket.share.elements();
  view(bucket.values, share * ranks_->rank(), {share}).copy_from(bucket.share);
  ranks_->all_gather(bucket.values).wait();
  bucket.share = Tensor();
  for (std::size_t i = bucket.begin; i < bucket.end; ++i) {
    ParameterState& state = *slots_[i].parameter.state();
    state.share = Tensor();
    move_into(state.value, bucket.values, slots_[i].offset);
  }
}

void DataParallel::for_divided(void (DataParallel::*change)(Bucket&)) {
  for (Bucket& bucket : buckets_)
    if (bucket.shadows.defined()) (this->*change)(bucket);
}

void DataParallel::with_whole_values(const std::function<void()>& use) {
  gather_for_another();
  try {
    use();
  } catch (...) {
    for_divided(&DataParallel::hold_share);
    throw;
  }
  for_divided(&DataParallel::hold_share);
}

void DataParallel::gather_for_another() { for_divided(&DataParallel::hold_whole); }

const DataParallel::Slot& DataParallel::slot_of(const Parameter& parameter) const {
  return slots_[static_cast<std::size_t>(positions_.find(parameter.state()))];
}

void DataParallel::require_in_place(const Slot& slot) const {
  const Bucket& bucket = buckets_[slot.bucket];
  const ParameterState& state = *slot.parameter.state();
  const bool is_divided = bucket.shadows.defined();
  const Tensor &used = is_divided ? state.shadow : state.value,
               &buffer = is_divided ? bucket.shadows : bucket.values;
  if (lies_at(used, buffer, slot.offset) && lies_at(state.gradient, bucket.gradients, slot.offset)) return;
  throw Error(format(
      "[data_parallel] a parameter's value and gradient must stay in their bucket's memory; got others "
      "for {}; try value().copy_from(), or set_value() before DataParallel and the optimizer are made",
      state.value.describe()));
}

void DataParallel::sum_during(Tape& tape) {
  if (buckets_.empty()) return;
  tape.on_final_gradient([this](ParameterState& state) { set_final(state); });
  for (Slot& slot : slots_) slot.is_final = slot.is_final || !slot.parameter.trainable();
}

void DataParallel::set_final(ParameterState& state) {
  const std::int32_t position = positions_.find(&state);
  if (position < 0) return;
  Slot& slot = slots_[static_cast<std::size_t>(position)];
  if (slot.bucket < started_) {
    throw Error(
        format("[data_parallel] a gradient must not change once its sum has started; got another for {}; try "
               "finish() after each backward that sums, and sum_during() only in the last of several passes",
               state.value.describe()));
  }
  slot.is_final = true;
  start_sums();
}

void DataParallel::start_sums() {
  while (final_slots_ < slots_.size() && slots_[final_slots_].is_final) ++final_slots_;
  while (started_ < buckets_.size() && buckets_[started_].end <= final_slots_)
    start_sum(buckets_[started_++]);
}

void DataParallel::start_sum(Bucket& bucket) {
  for (std::size_t i = bucket.begin; i < bucket.end; ++i) {
    require_in_place(slots_[i]);
    const ParameterState& state = *slots_[i].parameter.state();
    if (state.has_gradient) continue;
    const Tensor& rest = state.gradient;  // of an earlier step
    rest.copy_from(Tensor::zeros(rest.shape(), rest.dtype(), rest.device()));
  }
  bucket.under_way =
      is_sharded_ ? ranks_->reduce_scatter(bucket.gradients) : ranks_->all_reduce(bucket.gradients);
}

void DataParallel::finish() {
  for (Slot& slot : slots_) slot.is_final = true;
  start_sums();
  for (Bucket& bucket : buckets_) bucket.under_way.wait();
  for (Slot& slot : slots_) slot.is_final = false;
  final_slots_ = started_ = 0;
}

void DataParallel::gather_values() {
  if (!is_sharded_) return;
  for (Bucket& bucket : buckets_)
    bucket.under_way = ranks_->all_gather(bucket.shadows.defined() ? bucket.shadows : bucket.values);
  for (Bucket& bucket : buckets_) bucket.under_way.wait();
}

/// All ranks' pieces in a buffer that is laid out like the bucket's.
Tensor DataParallel::gathered(const Bucket& bucket, const std::vector<Parameter>& parameters,
                              const std::vector<Tensor>& pieces) const {
  const Tensor all = Tensor::zeros({bucket.elements}, bucket.gradients.dtype(), bucket.gradients.device());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Slot& slot = slot_of(parameters[i]);
    const Shape flat{pieces[i].elements()};
    if (&buckets_[slot.bucket] != &bucket || flat[0] == 0) continue;
    view(all, slot.offset + parameters[i].state()->updated.begin, flat).copy_from(pieces[i].alias(flat));
  }
  ranks_->all_gather(all).wait();
  return all;
}

void DataParallel::visit_whole(const std::vector<Parameter>& parameters, const std::vector<Tensor>& pieces,
                               const std::function<void(std::size_t, const Tensor&)>& visit) const {
  const Bucket* bucket = nullptr;
  Tensor all;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Slot& slot = slot_of(parameters[i]);
    if (std::exchange(bucket, &buckets_[slot.bucket]) != &buckets_[slot.bucket]) {
      all = Tensor();  // its memory is reused by the next
      all = gathered(*bucket, parameters, pieces);
    }
    visit(i, view(all, slot.offset, parameters[i].value().shape()));
    const Shape flat{pieces[i].elements()};
    if (flat[0] == 0) continue;
    pieces[i].alias(flat).copy_from(view(all, slot.offset + parameters[i].state()->updated.begin, flat));
  }
}

Tensor DataParallel::by_rank(const Tensor& x) const {
  const Tensor all = Tensor::zeros({ranks_->size()}, x.dtype(), x.device());
  view(all, ranks_->rank(), {1}).copy_from(x);
  ranks_->all_gather(all).wait();
  return all;
}

}  // namespace tapeformer
