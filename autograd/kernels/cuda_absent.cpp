#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/cuda.h>

/// Builds without CUDA.
namespace tapeformer::cuda {
namespace {

[[noreturn]] void throw_absent() { throw DeviceError("[cuda] " + availability() + "; try the cpu"); }

}  // namespace

int device_count() { return 0; }
std::string availability() { return "this build has no CUDA (configure with -DTAPEFORMER_CUDA=ON)"; }
std::string device_name(int) { throw_absent(); }
void* allocate(int, std::size_t) { throw_absent(); }
void* allocate_for_upload(int, std::size_t) { throw_absent(); }
void release(int, void*, std::size_t) noexcept {}
MemoryStatistics memory_statistics(int) { return {}; }
bool is_host_readable() { return false; }
void upload(int, void*, const void*, std::size_t) { throw_absent(); }
void overwrite(int, void*, const void*, std::size_t) { throw_absent(); }
void download(int, void*, const void*, std::size_t) { throw_absent(); }
void copy(int, void*, const void*, std::size_t) { throw_absent(); }
void copy_across(int, void*, int, const void*, std::size_t) { throw_absent(); }
void synchronize(int) {}
void fill(int, DType, Index, double, void*) { throw_absent(); }
void convert(int, DType, const void*, DType, void*, Index) { throw_absent(); }
void set_matmul_precision(MatmulPrecision) {}
MatmulPrecision matmul_precision() { return MatmulPrecision::f32; }
Offence* watch_for_offence(int, std::function<std::string(const Offence&)>) { throw_absent(); }
void report_offences(int) {}

}  // namespace tapeformer::cuda
