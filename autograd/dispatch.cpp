#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/dispatch.h>

namespace tapeformer {
namespace {

std::string bracketed(const char* op) { return std::string("[") + op + "] "; }

}  // namespace

namespace detail {

void check_operand(const char* op, const Tensor& first, const Tensor& x, bool is_wide) {
  if (!x.defined()) return;
  if (!is_floating(x.dtype())) {
    throw DTypeError(bracketed(op) + "values must be f32 or f64; got x=" + x.describe() +
                     "; try to(DType::f32)");
  }
  const DType type = is_wide ? wide(first.dtype()) : first.dtype();
  if (x.dtype() != type) {
    throw DTypeError(bracketed(op) + "all operands must have one type; got " + first.describe() + " and " +
                     x.describe() + "; try to(DType::" + name_of(type) + ")");
  }
  if (x.device() != first.device()) {
    throw DeviceError(bracketed(op) + "all operands must be on one device; got " + first.describe() + " on " +
                      first.device().text() + " and " + x.describe() + " on " + x.device().text() +
                      "; try to(Device), or to(Device) of the model");
  }
}

void throw_without_cuda(const char* op) {
  throw DeviceError(bracketed(op) +
                    "this operation was compiled without CUDA; try configuring with -DTAPEFORMER_CUDA=ON");
}

void throw_bf16_on_cpu(const char* op, const Tensor& x) {
  throw DTypeError(bracketed(op) + "the CPU computes in f32 and f64, GPUs in bf16 too; got x=" +
                   x.describe() + " on cpu; try to(DType::f32)");
}

kernels::Cuda cuda_tag(Device device) {
  cuda::report_device_errors(device.index);
  return {device.index};
}

void throw_again(const char* op, const DeviceError& error, std::initializer_list<const Tensor*> operands) {
  const std::string what = error.what();
  const std::size_t from = what.find("] ");  // after the name of the part that failed
  std::string message = bracketed(op) + (from == std::string::npos ? what : what.substr(from + 2));
  const char* before = "; got ";
  for (const Tensor* x : operands) {
    if (!x->defined()) continue;
    message += before + x->describe();
    before = ", ";
  }
  throw DeviceError(message);
}

}  // namespace detail

void require_same_device(const char* op, const char* name, const Tensor& x, const Tensor& like) {
  if (!x.defined() || x.device() == like.device()) return;
  throw DeviceError(bracketed(op) + name + " must be on the device of the values; got " + name + "=" +
                    x.describe() + " on " + x.device().text() + ", values=" + like.describe() + " on " +
                    like.device().text() + "; try " + name + ".to(Device)");
}

}  // namespace tapeformer
