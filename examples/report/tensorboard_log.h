#pragma once

#include <tapeformer/autograd/shape.h>

#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace tapeformer {

/// A file of events for TensorBoard, FOLDER/events.out.tfevents.SECONDS.PROCESS, made by the first event.
/// Events are in the file when a call returns.
/// Source:  TensorFlow's event.proto and summary.proto, and its framing of records, tfrecord
class TensorBoardLog {
 public:
  explicit TensorBoardLog(const std::string& folder);

  /// Adds a step's numbers, except those that an earlier call gave for it: TensorBoard would draw both.
  /// Throws: DataError if the file cannot be written
  void add(Index step, const std::vector<std::pair<std::string, double>>& scalars);
  /// Makes TensorBoard drop the steps after `step`, which are written again. Throws: the same
  void restart(Index step);

  const std::string& path() const { return path_; }

 private:
  void append(const std::string& event);

  std::string path_;
  bool begun_ = false;
  std::map<std::string, Index> last_;  // the step of each name's last number
};

/// The checksum of a record. Math: CRC-32C; ((c >> 15) | (c << 17)) + 0xa282ead8 where `masked`
std::uint32_t crc32c(std::string_view bytes, bool masked = false);

}  // namespace tapeformer
