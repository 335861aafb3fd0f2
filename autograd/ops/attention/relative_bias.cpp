#include <tapeformer/autograd/ops/attention/relative_bias.h>
#include <tapeformer/autograd/ops/attention/visibility.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/autograd/ops/shape.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace tapeformer {
namespace {

Index buckets_of_direction(const DistanceBuckets& buckets) {
  return buckets.bidirectional ? buckets.count / 2 : buckets.count;
}

}  // namespace

Tensor alibi_slopes(Index heads, Device device) {
  require(heads > 0, "alibi_slopes", "heads must be positive", {{"heads", heads}},
          "the number of query heads");
  Index power = 1;
  while (2 * power <= heads) power *= 2;
  const Tensor slopes = Tensor::empty({heads}, DType::f32, Device::cpu());
  const auto slope = [](Index head, Index of) {
    return static_cast<float>(std::exp2(-8.0 * static_cast<double>(head) / static_cast<double>(of)));
  };
  for (Index i = 0; i < heads; ++i)
    slopes.data<float>()[i] = i < power ? slope(i + 1, power) : slope(2 * (i - power) + 1, 2 * power);
  return slopes.to(device);
}

Tensor alibi_bias(const Tensor& slopes, Index reach) {
  require(slopes.rank() == 1 && reach >= 0, "alibi_bias", "slopes must be [H], and the reach not negative",
          {{"slopes", slopes}, {"reach", reach}}, "alibi_slopes(heads), and max(T, S) - 1");
  // From 0 to 2 R on the device, without an upload: steps are captured as CUDA graphs.
  const Index count = 2 * reach + 1;
  const Tensor entries = query_positions({}, 1, count, count, slopes.device()).to(slopes.dtype());
  const Tensor r = entries - Tensor::scalar_like(entries, static_cast<double>(reach));
  return reshape(slopes, Shape{slopes.elements(), 1}) * (r - relu(r) * 2);  // -|r|
}

Index bucket_of(Index r, const DistanceBuckets& buckets) {
  const Index count = buckets_of_direction(buckets), near = count / 2;
  const Index first = buckets.bidirectional && r > 0 ? count : 0;
  const Index distance = buckets.bidirectional ? std::abs(r) : std::max<Index>(-r, 0);
  if (distance < near) return first + distance;
  const auto exact = static_cast<float>(near);
  const auto range =
      static_cast<float>(std::log(static_cast<double>(buckets.max_distance) / static_cast<double>(near)));
  const float step =
      std::log(static_cast<float>(distance) / exact) / range * static_cast<float>(count - near);
  return first + std::min(near + static_cast<Index>(step), count - 1);
}

Tensor distance_buckets(const DistanceBuckets& buckets, Device device) {
  const Index near = buckets_of_direction(buckets) / 2, most = buckets.max_distance;
  require(near > 0 && most > near, "distance_buckets",
          "every direction must have two buckets, and max_distance lie beyond the near half of them",
          {{"count", buckets.count}, {"bidirectional", buckets.bidirectional}, {"max_distance", most}},
          "32 buckets up to 128");
  const Tensor ids = Tensor::empty({2 * most + 1}, DType::i32, Device::cpu());
  for (Index r = -most; r <= most; ++r)
    ids.data<std::int32_t>()[r + most] = static_cast<std::int32_t>(bucket_of(r, buckets));
  return ids.to(device);
}

Tensor bucketed_bias(const Tensor& table, const Tensor& ids, Index reach) {
  require(table.rank() == 2 && ids.rank() == 1 && ids.elements() % 2 == 1 && reach >= 0, "bucketed_bias",
          "the table must be [N, H], ids [2 M + 1], and the reach not negative",
          {{"table", table}, {"ids", ids}, {"reach", reach}}, "distance_buckets(), and max(T, S) - 1");
  const Index most = ids.elements() / 2;
  const Tensor near = permute(embedding(table, ids), {1, 0});
  if (reach <= most) return slice(near, 1, most - reach, 2 * reach + 1);
  const auto far = [&](Index end) {
    return broadcast_to(slice(near, 1, end, 1), {table.size(1), reach - most});
  };
  return concat({far(0), near, far(2 * most)}, 1);
}

}  // namespace tapeformer
