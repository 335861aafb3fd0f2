#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace tapeformer {

/// A reader of GGUF files for tests that shares no code with the writer.
struct GgufReader {
  struct Stored {
    std::vector<std::uint64_t> sizes;  // the innermost first
    std::uint32_t type;
    std::string bytes;
  };
  std::vector<std::string> order;            // of the tensors
  std::map<std::string, std::string> texts;  // metadata: numbers as text
  std::map<std::string, std::vector<std::string>> lists;
  std::map<std::string, Stored> tensors;

  explicit GgufReader(const std::string& content) : content_(content) {
    if (take(4) != "GGUF" || number<std::uint32_t>() != 3) throw std::runtime_error("not version 3");
    const auto tensor_count = number<std::uint64_t>(), pairs = number<std::uint64_t>();
    for (std::uint64_t i = 0; i < pairs; ++i) {
      const std::string key = text();
      const auto type = number<std::uint32_t>();
      if (type != 9) {
        texts[key] = value(type);
        continue;
      }
      const auto of = number<std::uint32_t>();
      const auto count = number<std::uint64_t>();
      auto& list = lists[key];
      for (std::uint64_t j = 0; j < count; ++j) list.push_back(value(of));
    }
    std::vector<std::uint64_t> offsets;
    for (std::uint64_t i = 0; i < tensor_count; ++i) {
      order.push_back(text());
      Stored& stored = tensors[order.back()];
      stored.sizes.resize(number<std::uint32_t>());
      for (std::uint64_t& size : stored.sizes) size = number<std::uint64_t>();
      stored.type = number<std::uint32_t>();
      offsets.push_back(number<std::uint64_t>());
    }
    const std::size_t data = (at_ + 31) / 32 * 32;
    for (std::size_t i = 0; i < order.size(); ++i) {
      Stored& stored = tensors[order[i]];
      std::uint64_t count = 1;
      for (const std::uint64_t size : stored.sizes) count *= size;
      const std::uint64_t bytes = stored.type == 0   ? 4 * count
                                  : stored.type == 1 ? 2 * count
                                                     : count / 32 * 34;
      if (offsets[i] % 32 != 0) throw std::runtime_error("not aligned");
      at_ = data + offsets[i];
      stored.bytes = take(bytes);
    }
    if (content_.size() != (at_ + 31) / 32 * 32) throw std::runtime_error("bytes are left over");
  }

  std::vector<float> floats(const std::string& name) const {
    const Stored& stored = tensors.at(name);
    std::vector<float> values(stored.bytes.size() / sizeof(float));
    std::memcpy(values.data(), stored.bytes.data(), stored.bytes.size());
    return values;
  }

 private:
  std::string take(std::uint64_t count) {
    if (count > content_.size() - at_) throw std::runtime_error("ends early");
    at_ += count;
    return content_.substr(at_ - count, count);
  }
  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return take(number<std::uint64_t>()); }
  std::string value(std::uint32_t type) {
    switch (type) {
      case 0: return std::to_string(number<std::uint8_t>());
      case 4: return std::to_string(number<std::uint32_t>());
      case 5: return std::to_string(number<std::int32_t>());
      case 6: return std::to_string(number<float>());
      case 7: return number<std::uint8_t>() != 0 ? "true" : "false";
      case 8: return text();
      default: throw std::runtime_error("an unknown type");
    }
  }

  const std::string content_;
  std::size_t at_ = 0;
};

}  // namespace tapeformer
