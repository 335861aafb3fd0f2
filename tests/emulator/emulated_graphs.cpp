#include <tapeformer/tests/emulator/emulated_state.h>

using namespace tapeformer::emulator;

constexpr std::size_t kNodeBytes = 8192;  // about the device memory of a node of an instance

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Lock lock(world().mutex);
  if (spoils_capture(stream)) return failed(cudaErrorStreamCaptureUnsupported);
  stream->capture = std::make_unique<EmulatedGraph>();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(world().mutex);
  *graph = nullptr;
  if (!stream->capture) return failed(cudaErrorInvalidValue);
  const std::unique_ptr<EmulatedGraph> captured = std::move(stream->capture);
  if (captured->is_spoilt) return failed(cudaErrorStreamCaptureInvalidated);
  *graph = new EmulatedGraph(*captured);
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  *count = graph->work.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  const Lock lock(world().mutex);
  EmulatedPool* const pool = &world().pools[current_device];
  const std::size_t bytes = kNodeBytes * graph->work.size();
  if (!take(*pool, bytes)) return failed(cudaErrorMemoryAllocation);
  *exec = new EmulatedGraphExec{std::make_shared<const EmulatedGraph>(*graph), pool, bytes};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const Lock lock(world().mutex);
  if (spoils_capture(stream)) return failed(cudaErrorStreamCaptureUnsupported);
  queue(*stream, [graph = exec->graph] {
    for (const auto& work : graph->work) work();
  });
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const Lock lock(world().mutex);
  exec->pool->in_use -= exec->bytes;
  delete exec;
  return cudaSuccess;
}
