#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/autograd/words.h>
#include <tapeformer/nn/formats/expression.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/formats/safetensors_folder.h>
#include <tapeformer/nn/formats/strict_json.h>

#include <cstring>
#include <map>

namespace tapeformer {
namespace {

/// The tensors of another program, under the names of foreign_parameters().
class ForeignWeights {
 public:
  ForeignWeights(const SafetensorsFolder& files, const TensorNames& names)
      : files_(files), names_(names), head_(names.weight("head")), embedding_(names.weight("embedding")) {
    // A model without a head is saved without the prefix.
    is_bare_ = !files.contains(embedding_) && files.contains(embedding_.substr(names.prefix().size()));
  }

  /// The name of a tensor in the files.
  std::string stored(const std::string& name) const {
    return is_bare_ && name != head_ ? name.substr(names_.prefix().size()) : name;
  }
  Tensor tensor(const std::string& name) const { return files_.tensor(stored(name)).to(DType::f32); }

  /// Throws:  CheckpointError unless each tensor is there with its shape, and there are no others
  void check(const std::vector<ForeignParameter>& parameters, bool tied) const {
    std::vector<std::pair<std::string, Shape>> wanted;
    for (const ForeignParameter& parameter : parameters)
      for (const ForeignPart& part : parameter.parts) wanted.emplace_back(stored(part.name), part.shape);
    files_.check_fit(
        wanted, [&](const std::string& name) { return (tied && name == head_) || names_.is_constant(name); });
    if (tied && files_.contains(head_)) check_tied_head();
  }

 private:
  void check_tied_head() const {
    const std::string embedding = stored(embedding_);
    const Tensor a = files_.tensor(head_).to(Device::cpu()), b = files_.tensor(embedding).to(Device::cpu());
    if (a.shape() == b.shape() && a.dtype() == b.dtype() &&
        std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0) {
      return;
    }
    throw CheckpointError(files_.path() + ": " + head_ + " differs from " + embedding +
                          ", to which the configuration ties it; try tie_word_embeddings=false");
  }

  const SafetensorsFolder& files_;
  const TensorNames& names_;
  std::string head_, embedding_;
  bool is_bare_;
};

DecoderOnly load(const SafetensorsFolder& files, const TensorNames& names, const DecoderOnlyConfig& config) {
  // Checked before anything is allocated: a damaged configuration may demand any size.
  if (config.layers > static_cast<Index>(files.names().size())) {
    throw CheckpointError(files.path() + ": has too few tensors for " + number_of(config.layers, "layer"));
  }
  const std::vector<ForeignParameter> sources = [&] {
    try {
      return foreign_parameters(names, config);
    } catch (const ShapeError& error) {  // more values in a tensor than can be counted
      throw CheckpointError(files.path() + ": the weights do not fit the model: " + error.what());
    }
  }();
  const ForeignWeights weights(files, names);
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
  const std::string path = folder + "/config.json", text = read_text_file(path);
  const FamilyModel model = naming(path, [&] { return hugging_face_model(text); });
  return load(SafetensorsFolder::open(folder), model.family->names, model.config);
}

void save_hugging_face(const std::string& folder, DecoderOnly& model, const ControlTokens& tokens) {
  const DType type = model.parameters().front().value().dtype();
  const std::string json = naming(folder, [&] { return hugging_face_json(model.config(), type, tokens); });
  const Family& family = *expression_in(transformers_format(), model.config()).family;
  const auto tensors = naming(folder, [&] { return foreign_tensors(family.names, model); });
  save_safetensors(folder + "/model.safetensors", tensors,
                   {{"format", "pt"}});  // transformers requires the format
  write_atomically(folder + "/config.json", json);
}

bool is_hugging_face(const std::string& folder) {
  const std::string path = folder + "/config.json", text = read_text_file(path);
  const auto json = naming(path, [&] { return parse_json(text, "the configuration", kConfigLevels); });
  if (json.is_object() && json.contains("model_type")) return true;
  if (json.is_object() && json.contains("model")) return false;
  throw CheckpointError(path + ": has neither model_type, as of transformers, nor model, as of ours");
}

}  // namespace tapeformer
