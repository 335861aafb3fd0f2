#pragma once

#include <tapeformer/examples/report/run_record.h>

namespace tapeformer {

/// The results of each run, and the options in which they differ: an object per run, with "run", "results"
/// and "options". A value that a run lacks is null.
Json comparison_json(const std::vector<RunRecord>& runs);

/// A comparison as a table with a column per run, or as several tables if it would be wider than `width`
/// characters; a `width` of 0 sets no limit.
std::string comparison_text(const Json& comparison, int width);

}  // namespace tapeformer
