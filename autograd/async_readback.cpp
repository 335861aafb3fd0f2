#include <tapeformer/autograd/async_readback.h>
#include <tapeformer/autograd/error.h>

#include <cstring>

namespace tapeformer {

AsyncReadback::AsyncReadback(const Tensor& x) {
  if (x.elements() != 1) throw ShapeError("[item] the tensor must have one element; got x=" + x.describe());
  here_ = Tensor::empty({}, x.dtype(), Device::cpu());
  if (x.device().is_cuda()) {
    readback_ = std::make_unique<cuda::Readback>(x.device().index, x.state()->storage->data,
                                                 static_cast<std::size_t>(x.bytes()));
  } else {
    here_.copy_from(x.alias({}));
  }
}

double AsyncReadback::item() {
  if (readback_) {
    std::memcpy(here_.raw(), readback_->wait(), static_cast<std::size_t>(here_.bytes()));
    readback_.reset();
  }
  return here_.item();
}

}  // namespace tapeformer
