#pragma once

#include <tapeformer/autograd/tensor.h>
#include <tapeformer/examples/report/run_record.h>

namespace tapeformer {

/// The indices of the values for a curve of at most `most` points: in each of equal parts the least, the
/// greatest, and the first that is not a number.
std::vector<std::size_t> decimated(const std::vector<double>& values, std::size_t most = 2000);

/// The data of a report's page. For each run: "name"; "best_loss"; "curves", each with the columns "step",
/// "time" (in seconds), "tokens" and "value", null where there is none; "samples", "bad_steps", "sessions",
/// "attention", "model" (lines of name and text).
Json report_data(const std::vector<RunRecord>& runs);

/// Attention weights in the form of TrainingTask::attention_example(), to three decimals. Layers with
/// undefined weights are left out; null if all are.
/// Shapes:  weights of each layer [1, H, T, S]; T row and S column labels
Json attention_json(const std::vector<Tensor>& weights, const std::string& layer_name,
                    const std::vector<std::string>& rows, const std::vector<std::string>& columns);

/// The whole page, without scripts, styles or fonts from elsewhere.
std::string report_page(const Json& data);

}  // namespace tapeformer
