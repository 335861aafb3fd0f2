#pragma once

#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/examples/shared/run_folder.h>

#include <sstream>

namespace tapeformer {

/// The lines of metrics.jsonl that have `field`, without what depends on the clock or the device, unless that
/// is asked for.
inline std::vector<Json> metrics(const RunFolder& folder, const std::string& field) {
  std::vector<Json> found;
  std::istringstream lines(read_file(folder.file("metrics.jsonl")));
  for (std::string line; std::getline(lines, line);) {
    Json entry = parse_json(line);
    for (const char* clocked : {"tokens_per_second", "elapsed"}) entry.erase(clocked);
    if (field != "seconds")
      for (const char* other : {"seconds", "device", "graphs", "peak_device_bytes"}) entry.erase(other);
    if (entry.contains(field) && entry.size() > 1) found.push_back(entry);
  }
  return found;
}

}  // namespace tapeformer
