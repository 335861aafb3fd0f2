#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/format.h>

#include <vector>

namespace tapeformer {
namespace detail {

void check_operand(const char* op, const Tensor& first, const Tensor& x, bool is_wide) {
  if (!x.defined()) return;
  if (!is_floating(x.dtype())) {
    throw DTypeError(
        format("[{}] values must be floating-point numbers; got x={}; try to(DType::f32)", op, x.describe()));
  }
  const DType type = is_wide ? wide(first.dtype()) : first.dtype();
  if (x.dtype() != type) {
    throw DTypeError(format("[{}] all operands must have one type; got {} and {}; try to(DType::{})", op,
                            first.describe(), x.describe(), name_of(type)));
  }
  if (x.device() != first.device()) {
    throw DeviceError(
        format("[{}] all operands must be on one device; got {} on {} and {} on {}; try to(Device), or "
               "to(Device) of the model",
               op, first.describe(), first.device().text(), x.describe(), x.device().text()));
  }
}

void throw_without_cuda(const char* op) {
  throw DeviceError(
      format("[{}] this operation was compiled without CUDA; try configuring with -DTAPEFORMER_CUDA=ON", op));
}

void throw_bf16_on_cpu(const char* op, const Tensor& x) {
  throw DTypeError(
      format("[{}] the CPU computes in f32 and f64, GPUs in bf16 too; got x={} on cpu; try to(DType::f32)",
             op, x.describe()));
}

kernels::Cuda cuda_tag(Device device) {
  cuda::report_device_errors(device.index);
  return {device.index};
}

void throw_again(const char* op, const DeviceError& error, std::initializer_list<const Tensor*> operands) {
  const std::string what = error.what();
  const std::size_t from = what.find("] ");  // after the name of the part that failed
  std::vector<std::string> got;
  for (const Tensor* x : operands)
    if (x->defined()) got.push_back(x->describe());
  throw DeviceError(format("[{}] {}{}{}", op, from == std::string::npos ? what : what.substr(from + 2),
                           got.empty() ? "" : "; got ", joined(got, ", ")));
}

}  // namespace detail

void require_same_device(const char* op, const char* name, const Tensor& x, const Tensor& like) {
  if (!x.defined() || x.device() == like.device()) return;
  throw DeviceError(format(
      "[{}] {} must be on the device of the values; got {}={} on {}, values={} on {}; try {}.to(Device)", op,
      name, name, x.describe(), x.device().text(), like.describe(), like.device().text(), name));
}

}  // namespace tapeformer
