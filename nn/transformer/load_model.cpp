#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/storage_limit.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/transformer/load_model.h>

namespace tapeformer {

void make_in_proportion(const FieldList& fields, const SafetensorsFile& file,
                        const std::function<void()>& make) {
  constexpr double kProportion = 4, kAlways = 1 << 30;  // a GiB
  const std::vector<std::string> names = file.names();
  double values = 0;
  Index layers = 0;
  for (const std::string& name : names) values += static_cast<double>(file.shape(name).elements());
  for (const ConfigField& field : fields)
    if (ends_with(field.name, "layers")) layers += std::get<Index>(*field.value());
  const auto fail = [&](const std::string& what) {
    throw CheckpointError(file.path() + ": the weights do not fit the model: " + what);
  };
  if (layers > static_cast<Index>(names.size())) fail("too few tensors for " + number_of(layers, "layer"));
  const StorageLimit limit(kAlways + kProportion * sizeof(double) * values);
  try {
    make();
  } catch (const Error& error) {
    fail(error.what());
  }
}

}  // namespace tapeformer
