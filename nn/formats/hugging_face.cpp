#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/autograd/words.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/formats/hugging_face_names.h>
#include <tapeformer/nn/formats/meta_llama.h>
#include <tapeformer/nn/formats/strict_json.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <set>

namespace tapeformer {
namespace {

constexpr int kMostProblems = 10;  // that a message lists

/// Collects what does not fit, one problem a line.
class Problems {
 public:
  void add(const std::string& problem) {
    if (++count_ <= kMostProblems) text_ += "\n  " + problem;
  }
  void throw_if_any(const std::string& path) const {
    if (count_ == 0) return;
    const int more = count_ - kMostProblems;
    throw CheckpointError(path + ": the weights do not fit the model:" + text_ +
                          (more > 0 ? "\n  and " + std::to_string(more) + " more" : ""));
  }

 private:
  int count_ = 0;
  std::string text_;
};

/// The tensors of another program, under the names of foreign_parameters().
class ForeignWeights {
 public:
  ForeignWeights(const SafetensorsFolder& files, ForeignFormat format) : files_(files), format_(format) {
    // A model without a head is saved without the prefix.
    const std::string prefix = name_prefix(format), embedding = embedding_name(format);
    is_bare_ = !files.contains(embedding) && files.contains(embedding.substr(prefix.size()));
  }

  /// The name of a tensor in the files.
  std::string stored(const std::string& name) const {
    return is_bare_ && name != head_name(format_) ? name.substr(name_prefix(format_).size()) : name;
  }
  Tensor tensor(const std::string& name) const { return files_.tensor(stored(name)).to(DType::f32); }

  /// Throws:  CheckpointError unless each tensor is there with its shape, and there are no others
  void check(const std::vector<ForeignParameter>& parameters, bool tied) const {
    Problems problems;
    std::set<std::string> wanted;
    for (const ForeignParameter& parameter : parameters) {
      for (const ForeignPart& part : parameter.parts) {
        wanted.insert(stored(part.name));
        check_part(stored(part.name), part.shape, problems);
      }
    }
    for (const std::string& name : files_.names()) {
      const bool is_tied_head = tied && name == head_name(format_);
      if (wanted.count(name) > 0 || is_tied_head || is_constant(format_, name)) continue;
      problems.add(name + " is not in the model");
    }
    problems.throw_if_any(files_.path());
    if (tied && files_.contains(head_name(format_))) check_tied_head();
  }

 private:
  void check_part(const std::string& name, const Shape& shape, Problems& problems) const {
    if (!files_.contains(name)) return problems.add(name + " is missing");
    const std::string& type = files_.file(name).dtype(name);
    if (files_.shape(name) != shape) {
      problems.add(name + " is " + files_.shape(name).text() + " in the file and " + shape.text() +
                   " in the model");
    } else if (type != "F32" && type != "F16" && type != "BF16" && type != "F64") {
      problems.add(name + " is of type " + type + ", not of a floating one");
    }
  }

  void check_tied_head() const {
    const std::string head = head_name(format_), embedding = stored(embedding_name(format_));
    const Tensor a = files_.tensor(head).to(Device::cpu()), b = files_.tensor(embedding).to(Device::cpu());
    if (a.shape() == b.shape() && a.dtype() == b.dtype() &&
        std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0) {
      return;
    }
    throw CheckpointError(files_.path() + ": " + head + " differs from " + embedding +
                          ", to which the configuration ties it; try tie_word_embeddings=false");
  }

  const SafetensorsFolder& files_;
  ForeignFormat format_;
  bool is_bare_;
};

DecoderOnly load(const SafetensorsFolder& files, ForeignFormat format, const DecoderOnlyConfig& config) {
  // Checked before anything is allocated: a damaged configuration may demand any size.
  if (config.layers > static_cast<Index>(files.names().size())) {
    throw CheckpointError(files.path() + ": has too few tensors for " + number_of(config.layers, "layer"));
  }
  const std::vector<ForeignParameter> sources = [&] {
    try {
      return foreign_parameters(format, config);
    } catch (const ShapeError& error) {  // more numbers in a tensor than can be counted
      throw CheckpointError(files.path() + ": the weights do not fit the model: " + error.what());
    }
  }();
  const ForeignWeights weights(files, format);
  weights.check(sources, config.tie_head);

  const NoGradGuard pause;
  Generator random(0);
  DecoderOnly model(config, random);
  std::map<std::string, Parameter> parameters;
  for (const auto& [name, parameter] : model.named_parameters()) parameters.emplace(name, parameter);
  for (const ForeignParameter& source : sources) {
    TensorList parts;
    for (const ForeignPart& part : source.parts) parts.push_back(to_ours(part, weights.tensor(part.name)));
    parameters.at(source.name).value().copy_from(parts.size() == 1 ? parts[0] : concat(parts, 0));
    parameters.erase(source.name);
  }
  for (const auto& [name, parameter] : parameters) {
    throw CheckpointError(files.path() + ": has nothing for " + name);
  }
  model.eval();
  return model;
}

ForeignFormat format_of(const DecoderOnlyConfig& config) {
  return config.norm == NormKind::layer ? ForeignFormat::gpt2 : ForeignFormat::llama;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// Calls function() and puts the path before the message of an exception.
template <class F>
auto naming(const std::string& path, const F& function) {
  try {
    return function();
  } catch (const CheckpointError& error) {
    throw CheckpointError(path + ": " + error.what());
  }
}

}  // namespace

DecoderOnly load_hugging_face(const std::string& folder) {
  const std::string path = folder + "/config.json", params = folder + "/params.json";
  if (!exists(path) && exists(params)) {
    const SafetensorsFolder files = SafetensorsFolder::open(folder);
    const std::string text = read_text_file(params);
    return load(files, ForeignFormat::meta, naming(folder, [&] { return meta_llama_config(files, text); }));
  }
  const std::string text = read_text_file(path);
  DecoderOnlyConfig config = naming(path, [&] { return hugging_face_config(text); });
  const SafetensorsFolder files = SafetensorsFolder::open(folder);
  if (format_of(config) == ForeignFormat::gpt2 || !has_meta_names(files)) {
    return load(files, format_of(config), config);
  }
  config.attention.rotations.layout = RotaryLayout::interleaved;
  return load(files, ForeignFormat::meta, config);
}

DecoderOnly load_meta_llama(const std::string& path, Index heads, Index context, double epsilon,
                            double base) {
  const SafetensorsFolder files(SafetensorsFile::open(path));
  MetaLlamaSettings settings;
  settings.heads = heads, settings.context = context, settings.epsilon = epsilon;
  settings.rotations.base = base;
  return load(files, ForeignFormat::meta, meta_llama_config(files, settings));
}

void save_hugging_face(const std::string& folder, DecoderOnly& model, const ControlTokens& tokens) {
  const DType type = model.parameters().front().value().dtype();
  const std::string json = naming(folder, [&] { return hugging_face_json(model.config(), type, tokens); });
  const auto tensors = naming(folder, [&] { return foreign_tensors(format_of(model.config()), model); });
  save_safetensors(folder + "/model.safetensors", tensors,
                   {{"format", "pt"}});  // transformers requires the format
  write_atomically(folder + "/config.json", json);
}

bool is_hugging_face(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!exists(path) && exists(folder + "/params.json")) return true;
  const std::string text = read_text_file(path);
  const auto json = naming(path, [&] { return parse_json(text, "the configuration", kConfigLevels); });
  if (json.is_object() && json.contains("model_type")) return true;
  if (json.is_object() && json.contains("model")) return false;
  throw CheckpointError(path + ": has neither model_type, as of transformers, nor model, as of ours");
}

}  // namespace tapeformer
