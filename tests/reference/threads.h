#pragma once

#include <omp.h>

namespace tapeformer {

/// Until the end of the scope this thread's work is divided among `count` threads.
class Threads {
 public:
  explicit Threads(int count) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  const int before_ = omp_get_max_threads();
};

}  // namespace tapeformer
