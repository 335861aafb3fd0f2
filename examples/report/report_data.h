#pragma once

#include <tapeformer/autograd/tensor.h>
#include <tapeformer/examples/report/run_record.h>

namespace tapeformer {

constexpr std::size_t kMostPoints = 2000;  ///< of a curve

/// The places of the values that a curve of at most `most` points needs: in each of equal parts the least,
/// the greatest, and the first that is not a number.
std::vector<std::size_t> decimated(const std::vector<double>& values, std::size_t most = kMostPoints);

/// What the page of a report draws. For each run: "name"; "curves", of each the columns "step", "time" (in
/// seconds), "tokens" and "value", null where there is none; "samples", "bad_steps", "sessions",
/// "attention", "model" (lines of name and text), "ending".
Json report_data(const std::vector<RunRecord>& runs);

/// Attention weights for a report, as TrainingTask::attention_example() gives them, to three decimals.
/// Layers whose weights are undefined are left out, and nothing is left where all are.
/// Shapes:  weights of each layer [1, H, T, S]; T row and S column labels
Json attention_json(const std::vector<Tensor>& weights, const std::string& layer_name,
                    const std::vector<std::string>& rows, const std::vector<std::string>& columns);

/// The page, whole: no script, style or font comes from elsewhere.
std::string report_page(const Json& data);

}  // namespace tapeformer
