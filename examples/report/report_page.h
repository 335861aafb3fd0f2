#pragma once

namespace tapeformer {

/// The page, with marks where style, script and data come in.
extern const char* const kReportPageText;
extern const char* const kReportStyleText;
/// The script, in the order of its parts: charts, and what is below them.
extern const char* const kReportChartsText;
extern const char* const kReportPanelsText;

}  // namespace tapeformer
