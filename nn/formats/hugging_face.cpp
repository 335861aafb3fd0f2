#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/formats/expression.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/formats/safetensors_folder.h>
#include <tapeformer/nn/formats/strict_json.h>
#include <tapeformer/nn/transformer/load_model.h>

#include <cstring>
#include <set>

namespace tapeformer {
namespace {

/// True for a tensor of zeros that the files lack.
bool is_absent(const SafetensorsFolder& files, const TensorNames& names, const ForeignPart& part) {
  return part.name == names.optional && !files.contains(part.name);
}

/// Makes a tied parameter read the first of its tensors that is in the files.
void choose_tied(const SafetensorsFolder& files, ForeignParameter& parameter) {
  std::string& name = parameter.parts[0].name;
  for (const std::string& other : parameter.same)
    if (!files.contains(name) && files.contains(other)) name = other;
}

/// Takes the other names of the parts that the files have under these.
void choose_synonyms(const SafetensorsFolder& files, const TensorNames& names, ForeignParameter& parameter) {
  const auto& [one, other] = names.synonym;
  for (ForeignPart& part : parameter.parts) {
    const std::size_t at = one.empty() ? std::string::npos : part.name.find(one);
    if (at == std::string::npos || files.contains(part.name)) continue;
    const std::string renamed = std::string(part.name).replace(at, one.size(), other);
    if (files.contains(renamed)) part.name = renamed;
  }
}

/// A convolution of several tensors may be divided anywhere: transformers divides it into equal parts.
void divide_as_found(const SafetensorsFolder& files, ForeignParameter& parameter) {
  Index found = 0, wanted = 0;
  for (const ForeignPart& part : parameter.parts) {
    if (part.taps == 0 || !files.contains(part.name) || files.shape(part.name).rank() == 0) return;
    wanted += part.shape[0], found += files.shape(part.name)[0];
  }
  if (found != wanted) return;
  for (ForeignPart& part : parameter.parts) part.shape.set(0, files.shape(part.name)[0]);
}

bool are_same(const SafetensorsFolder& files, const std::string& one, const std::string& other) {
  const Tensor a = files.tensor(one).to(Device::cpu()), b = files.tensor(other).to(Device::cpu());
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0;
}

/// Unties the head of a family whose weights decide.
void untie_other_head(const SafetensorsFolder& files, FamilyModelOf<EncoderDecoderConfig>& model) {
  const TensorNames& names = model.family->names;
  const std::string head = names.weight("head.weight"), &embedding = names.shared_embedding;
  bool& is_tied = model.config.tie_target_head;
  if (is_tied && names.has(kTiedByWeights) && files.contains(head) && files.contains(embedding))
    is_tied = are_same(files, head, embedding);
}
void untie_other_head(const SafetensorsFolder&, const FamilyModelOf<DecoderOnlyConfig>&) {}

/// Throws:  CheckpointError unless all tensors that are tied to a parameter's are equal to it
void check_tied(const SafetensorsFolder& files, const ForeignParameter& parameter) {
  const std::string& name = parameter.parts[0].name;
  for (const std::string& other : parameter.same) {
    if (!files.contains(other) || are_same(files, name, other)) continue;
    throw CheckpointError(format(
        "{}: {} differs from {}, to which the configuration ties it; try {}=false", files.path(), other, name,
        parameter.same.size() > 1 ? "share_encoder_decoder_embeddings" : "tie_word_embeddings"));
  }
}

/// Throws:  CheckpointError for weights of 4 bits
void refuse_mxfp4(const SafetensorsFolder& files) {
  for (const std::string& name : files.names())
    if (ends_with(name, "_blocks"))
      throw CheckpointError(files.path() + ": " + name + " is in mxfp4: " + kMxfp4Refusal);
}

/// The parameters of a model and their places in the files.
/// Throws:  CheckpointError unless each tensor is there with its shape, and there are no others
template <class Model>
std::vector<ForeignParameter> found_parameters(const SafetensorsFolder& files, const TensorNames& names,
                                               Model& model) {
  std::vector<ForeignParameter> parameters = foreign_parameters(names, layouts_of(model));
  const std::string prefix = names.prefix(), embedding = parameters[0].parts[0].name;
  const auto has_prefix = [&](const std::string& name) {
    return name.compare(0, prefix.size(), prefix) == 0;
  };
  std::string found_prefix = prefix;
  for (const std::string& other : {names.part_prefix, std::string()})  // models without a head have none
    if (!files.contains(embedding) && has_prefix(embedding) &&
        files.contains(other + embedding.substr(prefix.size())))
      found_prefix = other;
  const auto strip = [&](std::string& name) {
    if (has_prefix(name)) name.replace(0, prefix.size(), found_prefix);
  };
  std::vector<std::pair<std::string, Shape>> wanted;
  std::set<std::string> tied;
  for (ForeignParameter& parameter : parameters) {
    for (ForeignPart& part : parameter.parts) strip(part.name);
    for (std::string& other : parameter.same) strip(other);
    choose_tied(files, parameter), divide_as_found(files, parameter);
    choose_synonyms(files, names, parameter);
    for (const ForeignPart& part : parameter.parts)
      if (!is_absent(files, names, part) && part.before == 0) wanted.emplace_back(part.name, part.shape);
    tied.insert(parameter.same.begin(), parameter.same.end());
  }
  files.check_fit(wanted,
                  [&](const std::string& name) { return tied.count(name) > 0 || names.is_constant(name); });
  for (const ForeignParameter& parameter : parameters) check_tied(files, parameter);
  return parameters;
}

}  // namespace

template <class Model>
Model load_hugging_face(const std::string& folder) {
  using Config = std::decay_t<decltype(std::declval<Model>().config())>;
  const std::string path = folder + "/config.json", text = read_file<CheckpointError>(path);
  auto found = naming(path, [&] { return hugging_face_model<Config>(text); });
  const SafetensorsFolder files = SafetensorsFolder::open(folder);
  refuse_mxfp4(files);
  untie_other_head(files, found);
  const TensorNames& names = found.family->names;
  Model model = made_in_proportion<Model>(found.config, files);
  const auto sources = found_parameters(files, names, model);
  naming(files.path(), [&] {
    fill_parameters(model, sources, [&](const ForeignPart& part) {
      return is_absent(files, names, part) ? Tensor::zeros(part.shape) : files.tensor(part.name);
    });
  });
  model.eval();
  return model;
}

template <class Model>
void save_hugging_face(const std::string& folder, Model& model, const ControlTokens& tokens) {
  const DType type = model.parameters().front().value().dtype();
  const std::string json = naming(folder, [&] { return hugging_face_json(model.config(), type, tokens); });
  using Config = std::decay_t<decltype(model.config())>;
  const TensorNames& names = expression_in(transformers_format<Config>(), model.config()).family->names;
  const auto tensors = naming(folder, [&] { return foreign_tensors(names, layouts_of(model), model); });
  save_safetensors(folder + "/model.safetensors", tensors,
                   {{"format", "pt"}});  // transformers requires the format
  write_atomically(folder + "/config.json", json);
}

template DecoderOnly load_hugging_face(const std::string&);
template EncoderDecoder load_hugging_face(const std::string&);
template void save_hugging_face(const std::string&, DecoderOnly&, const ControlTokens&);
template void save_hugging_face(const std::string&, EncoderDecoder&, const ControlTokens&);

bool is_hugging_face(const std::string& folder) {
  const std::string path = folder + "/config.json", text = read_file<CheckpointError>(path);
  const auto json = naming(path, [&] { return parse_json(text, "the configuration", kConfigLevels); });
  if (json.is_object() && json.contains("model_type")) return true;
  if (json.is_object() && json.contains("model")) return false;
  throw CheckpointError(path + ": has neither model_type (transformers) nor model (this program)");
}

}  // namespace tapeformer
