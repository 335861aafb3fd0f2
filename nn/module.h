#pragma once

#include <tapeformer/autograd/parameter.h>

#include <map>

namespace tapeformer {

class Linear;
class Module;

/// Walks a model's state by name. Override the functions that you need.
class ParameterVisitor {
 public:
  virtual ~ParameterVisitor() = default;
  /// Called for every parameter; twice for one with two names.
  virtual void on_parameter(const std::string& /*path*/, Parameter& /*parameter*/) {}
  /// A constant that follows from the configuration, such as a table of sinusoids.
  virtual void on_buffer(const std::string& /*path*/, Tensor& /*buffer*/) {}
  /// A value that a checkpoint must hold for training to continue unchanged, such as the count of dropout
  /// masks drawn.
  virtual void on_counter(const std::string& /*path*/, std::uint64_t& /*counter*/) {}
  /// The mode of a layer that behaves differently in training, such as dropout.
  virtual void on_training_mode(bool& /*training*/) {}
  /// A layer that may have an adapter, before its parameters.
  virtual void on_linear(const std::string& /*path*/, Linear& /*layer*/) {}
  /// The numbers of rows of the matrices of a parameter that holds several, one below the other.
  virtual void on_row_parts(const std::string& /*path*/, const std::vector<Index>& /*rows*/) {}

  /// Called by Module::visit() for each member, with its name in this module.
  /// @{
  void parameter(const std::string& name, Parameter& member);
  void buffer(const std::string& name, Tensor& member);
  void counter(const std::string& name, std::uint64_t& member);
  void training_mode(bool& member) { on_training_mode(member); }
  void linear(Linear& self) { on_linear(prefix_.substr(0, prefix_.size() - 1), self); }
  void row_parts(const std::string& name, const std::vector<Index>& rows) { on_row_parts(path(name), rows); }
  void child(const std::string& name, Module& member);
  /// @}
  /// Children named by their position: "0", "1", ...
  template <class Layer>
  void children(std::vector<Layer>& layers) {
    for (std::size_t i = 0; i < layers.size(); ++i) child(std::to_string(i), layers[i]);
  }

 private:
  std::string path(const std::string& name) const { return prefix_ + name; }
  std::string prefix_;
};

/// Base of layers and models. Parameters are members by value that visit() names once; everything else
/// follows from visit(). A copy would share its parameters, so modules only move.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  Module(Module&&) = default;
  Module& operator=(Module&&) = default;

  /// Names every parameter, buffer, counter and child once, always in the same order.
  virtual void visit(ParameterVisitor& visitor) = 0;

  /// Each parameter once, in visiting order, under the first of its names.
  std::vector<std::pair<std::string, Parameter>> named_parameters();
  /// The parameters alone. Also writes each path into its parameter, so that error messages can show it (any
  /// visit does so for a parameter without a name).
  std::vector<Parameter> parameters();
  /// Each counter, under its path.
  std::vector<std::pair<std::string, std::uint64_t*>> named_counters();
  /// The addresses of everything that the forward pass reads or changes.
  ModelState state();
  /// Parameters that hold several matrices, one below the other, by name: the number of rows of each matrix.
  std::map<std::string, std::vector<Index>> row_parts();
  /// The number of the parameters' values, frozen ones too; tied ones count once.
  Index parameter_count();
  /// Clears the gradient of every parameter.
  void clear_gradients();

  /// Dropout drops in training mode (the default) and passes its input on in evaluation mode.
  void train() { set_training(true); }
  /// See train().
  void eval() { set_training(false); }
  /// Converts every parameter; f64 is for gradient checks. Gradients are dropped.
  void to(DType type);
  /// Moves parameters and buffers; tied ones stay tied. Gradients are dropped. Call it before making the
  /// optimizer, whose state is on the device of the parameters.
  void to(Device device);
  /// From now on operations read the parameters in `type` (bf16), which is then also the type of activations
  /// and their gradients. The parameters themselves stay as they are: see Parameter::set_shadow().
  void compute_in(DType type);

 private:
  void set_training(bool training);
};

}  // namespace tapeformer
